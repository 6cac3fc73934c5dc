"""Which number format a processor multiplies fastest: by torch, and by the kernels in C, whose sets agree."""

import numpy as np
import pytest
import torch
from tests.unit.native.products import multiply

from saucier import devices
from saucier.devices import multiplies_bfloat16  # as it is before all tests are told that no processor does
from saucier.machine import read_cpuinfo
from saucier.native.library import list_paths, load_library
from saucier.native.matrices import Matrix, round_groups


@pytest.mark.parametrize(("vendor", "registers", "tiles", "fast"), [
    ("AuthenticAMD", True, False, True), ("AuthenticAMD", False, False, False), ("GenuineIntel", True, False, False),
    ("GenuineIntel", True, True, True), (None, True, False, True)])
def test_bfloat16_is_for_processors_that_multiply_it_faster(monkeypatch: pytest.MonkeyPatch, vendor: str | None,
                                                            registers: bool, tiles: bool, fast: bool) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: registers)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr(devices, "read_cpuinfo", {"vendor_id": vendor}.get)
    assert multiplies_bfloat16(torch.device("cpu")) is fast


def test_the_kernels_leave_slow_products_of_bfloat16_alone() -> None:
    paths, best = list_paths(), load_library().saucier_best_path().decode()
    if "avx512bf16" not in paths:
        pytest.skip("this processor has no AVX-512 BF16")
    of_intel = "amx" if "amx" in paths else "avx512"
    assert best == (of_intel if read_cpuinfo("vendor_id") == "GenuineIntel" else "avx512bf16")


@pytest.mark.parametrize("group", [32, 64, 128, 1100])
def test_sets_that_sum_four_products_of_bytes_agree(group: int) -> None:
    """To the last bit, AMX too: of int8, few tokens go one way and many the other."""
    paths = [path for path in list_paths() if path in ("avxvnni", "avx512", "avx512bf16", "amx")]
    if len(paths) < 2:
        pytest.skip("this processor has not two such sets")
    random, inputs = np.random.default_rng(8), 1100 if group == 1100 else 896
    codes, scales = round_groups(random.normal(size=(70, inputs)).astype(np.float32), group, 127, np.dtype(np.float32))
    matrix, x = Matrix("int8", codes, inputs, scales, group), random.normal(size=(75, inputs)).astype(np.float32)
    first, *others = (multiply(path, matrix, x) for path in paths)
    assert all((one == first).all() for one in others)
