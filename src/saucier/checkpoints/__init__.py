"""Reading and writing models: folders of config.json, model.safetensors and generation_config.json."""
