"""x"""
import typer

app = typer.Typer()


@app.command()
def train() -> None:
    """x"""


@app.command()
def inspect() -> None:
    """x"""
