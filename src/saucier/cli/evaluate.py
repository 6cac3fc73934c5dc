"""`saucier evaluate`: how well a model predicts a text, or translates one."""

from __future__ import annotations

import typer

from saucier.cli.arguments import AsJson, Run


def evaluate(run: Run, as_json: AsJson = False) -> None:
    """x"""
