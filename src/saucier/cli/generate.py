"""x"""
from __future__ import annotations
import typer
from saucier.cli.arguments import AsJson, Run


def generate(run: Run, as_json: AsJson = False) -> None:
    """x"""
