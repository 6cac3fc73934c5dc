"""Which number format a processor multiplies fastest: by torch, and by the kernels in C."""

import pytest
import torch

from saucier import devices
from saucier.devices import multiplies_bfloat16  # as it is before all tests are told that no processor does
from saucier.machine import read_cpuinfo
from saucier.native.library import list_paths, load_library


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
    slow = "amx" if "amx" in paths else "avx512"
    assert best == (slow if read_cpuinfo("vendor_id") == "GenuineIntel" else "avx512bf16")
