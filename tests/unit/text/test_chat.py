"""Chat templates: the text that transformers gives for them, and hostile ones refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from saucier.errors import InputError
from saucier.text.tokenizer.chat import render_template
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
BLOCKS = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (system + '\n\n' if loop.first and system is defined else '') }}
        {{- message['content'] | trim + ' [/INST]' }}
    {%- else %}
        {%- generation %}{{- ' ' ~ message['content'] ~ eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
"""
TOOLS = """{%- set ns = namespace(last=0, text='') %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- if tools %}{{ tools | tojson(indent=2) }}
{% for tool in tools %}{{ tool.function.name }}: {{ tool.function.parameters | tojson }}
{% endfor %}{% endif %}
{%- for m in messages %}
{%- if loop.index0 > ns.last and '</think>' in m.content %}{%- set c = m.content.split('</think>')[-1].lstrip('\n') %}
{%- else %}{%- set c = m.content %}{%- endif %}
{%- if m.role == 'tool' %}{%- continue %}{%- endif %}
{{ m.role | upper }}|{{ c.strip() | replace('a', 'b') }}|{{ '%02d' % loop.index }}
{{ "{}-{}".format(loop.index, c | length) }}
{%- endfor %}
{{ messages | map(attribute='role') | join(', ') }}{{ 'x' * 3 }}{{ dict(a=1) | items | list }}
{%- macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ok') }}
"""
TALK = [{"role": "user", "content": "Say <a> & \"b\"  "}, {"role": "assistant", "content": "<think>hm</think>\n\na b"},
        {"role": "user", "content": "Grüße 🙂"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"x": {"type": "number"}}}}}


@pytest.fixture
def folder(shared: Path, tmp_path: Path) -> Path:
    """Return a folder with a tokenizer and no template."""
    load_tokenizer(shared / "golden/tokenizer-byte-bpe").save(tmp_path)
    return tmp_path


def with_template(folder: Path, template: Any) -> Tokenizer:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
    return load_tokenizer(folder)


@pytest.mark.parametrize("template", [CHATML, BLOCKS, TOOLS], ids=["chatml", "blocks", "tools"])
@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("prompt", [False, True])
def test_the_same_text_as_the_reference(folder: Path, template: str, system: bool, prompt: bool) -> None:
    transformers = pytest.importorskip("transformers")
    messages = ([{"role": "system", "content": "Be brief."}] if system else []) + TALK
    tools = [TOOL] if template == TOOLS else None
    ours = with_template(folder, template)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, tools=tools)
    assert ours.apply_chat_template(messages, add_generation_prompt=prompt, tools=tools) == wanted
    ours.save(folder / "again")
    assert load_tokenizer(folder / "again").apply_chat_template(messages, add_generation_prompt=prompt,
                                                                tools=tools) == wanted


def test_named_templates_and_a_file_of_its_own(folder: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    tokenizer = with_template(folder, named)
    assert tokenizer.apply_chat_template(TALK) == "plain"
    assert tokenizer.apply_chat_template(TALK, tools=[TOOL]) == "tools"
    assert tokenizer.apply_chat_template(TALK, template="tool_use") == "tools"
    assert tokenizer.apply_chat_template(TALK, template="{{ messages | length }}") == "3"
    with pytest.raises(InputError, match="did you mean 'tool_use'"):
        tokenizer.apply_chat_template(TALK, template="tool_uses")
    (folder / "chat_template.jinja").write_text("of the file")
    assert load_tokenizer(folder).apply_chat_template(TALK) == "of the file"


def test_without_a_template(folder: Path) -> None:
    with pytest.raises(InputError, match="has no chat template"):
        load_tokenizer(folder).apply_chat_template(TALK)


def test_a_template_may_refuse_messages(folder: Path) -> None:
    with pytest.raises(InputError, match="refuses the messages: roles must alternate"):
        with_template(folder, BLOCKS).apply_chat_template([TALK[1]])


@pytest.mark.sampled
@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__base__ }}",
    "{{ '{0.__class__.__base__}'.format(messages) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{% set ns = namespace(a=1) %}{% set ns.__class__ = 1 %}",
    "{% for i in range(10 ** 9) %}x{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% for k in r %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "{{ 'x' * 10 ** 10 }}", "{{ [1] * 10 ** 10 }}", "{{ 9 ** 9 ** 9 ** 9 ** 9 ** 9 }}", "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000d}'.format(1) }}", "{{ 'x'.ljust(10 ** 10) }}", "{{ 'x' | center(10000000000) }}",
    "{{ messages | tojson(indent=10000000000) }}",
    "{% set a = 'x' * 100000 %}{{ a | replace('x', a) | replace('x', a) }}",
    "{% set ns = namespace(t='xx') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
    "{% set ns = namespace(t='xx') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% if %}", "{{ x.y.z }}", "{{ messages[7] + 1 }}",
    "{{ 1 / 0 }}", "{{ nosuch() }}", "x" * 300_000,
])
def test_hostile_and_broken_templates(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("saucier.text.tokenizer.chat.SECONDS", 1.0)
    started = time.monotonic()
    with pytest.raises(InputError, match="chat template cannot be used"):
        render_template(template, {"messages": [{"role": "user", "content": "a"}]})
    assert time.monotonic() - started < 10
