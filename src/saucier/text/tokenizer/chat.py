"""Chat templates: messages to text, by the Jinja template that comes with a tokenizer.

A template is a program of whoever published the tokenizer, so it runs in Jinja's immutable sandbox, and every
operation that can make something large, or run for long, is bounded before it runs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError, report_missing

if TYPE_CHECKING:
    from jinja2 import Environment, Template

SECONDS = 5.0
"""Longest time that a template may take."""
LARGEST = 4_000_000
"""Largest text or list that a template may make, and largest text that it may give."""
LONGEST_TEMPLATE = 200_000
BITS = 10_000
"""Largest number that a template may compute, in bits."""
NUMBER = 1_000_000
"""Largest number that a call may get: how wide, how many."""
PRODUCT = 100_000_000
"""Most letters that one call may make of its arguments, before they are counted."""
SLOW = {"urlize": 50_000, "wordwrap": 200_000, "striptags": 200_000, "title": 1_000_000, "pprint": 50_000,
        "groupby": 200_000, "unique": 200_000, "xmlattr": 200_000, "batch": 200_000, "list": 1_000_000}
"""Filter -> most letters that it may work on, where more could take long: no clock is checked inside of it."""

DEADLINE = ContextVar("DEADLINE", default=float("inf"))
"""When the template that this thread fills must be done: compiled templates are shared by all threads."""


def render_template(template: str, variables: Mapping[str, Any]) -> str:
    """Fill a chat template. Raises `InputError` for a template that is broken, escapes, refuses, or wants too much."""
    jinja2 = import_jinja()
    if len(template) > LONGEST_TEMPLATE:
        raise make_template_error(f"has {len(template):,} characters, of at most {LONGEST_TEMPLATE:,}")
    try:
        compiled = compile_template(template)
        DEADLINE.set(time.monotonic() + SECONDS)
        parts, size = [], 0
        for part in compiled.generate(**variables):
            size += len(part)
            if size > LARGEST:
                raise make_template_error(f"it gives more than {LARGEST:,} characters")
            parts.append(part)
    except jinja2.TemplateError as error:
        line = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise make_template_error(f"{error}{line}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError, MemoryError,
            SyntaxError) as error:
        raise make_template_error(f"{type(error).__name__}: {str(error)[:200]}") from error
    return "".join(parts)


def make_template_error(what: str) -> InputError:
    """Build the error for a template that does not work."""
    return InputError(f"the chat template cannot be used: {what}", where="chat_template",
                      remedy="give messages that it knows, or another template")


def import_jinja() -> Any:
    """Import Jinja. Raises `InputError` that names the extra where it is missing."""
    with report_missing("chat templates need jinja2", where="apply_chat_template",
                        remedy="pip install 'saucier[chat]'"):
        import jinja2
    return jinja2


@lru_cache(maxsize=16)
def compile_template(template: str) -> Template:
    """Compile a template with a clock in every loop, and with joining of texts counted."""
    from jinja2 import Template as Compiled
    from jinja2 import nodes

    environment = build_sandbox()
    tree = environment.parse(template)
    for loop in tree.find_all(nodes.For):  # every turn of it checks the clock
        check = nodes.Call(nodes.EnvironmentAttribute("check_clock"), [], [], None, None)
        loop.body.insert(0, nodes.ExprStmt(check, lineno=loop.lineno).set_lineno(loop.lineno))
    compiled = Compiled.from_code(environment, environment.compile(tree), environment.make_globals(None), None)
    names = compiled.root_render_func.__globals__
    for name in ("str_join", "markup_join"):
        names[name] = count_join(names[name])
    return compiled


def build_sandbox() -> Environment:
    """Return the environment that transformers' templates are written for, with every growing operation counted."""
    from jinja2 import ext, nodes, sandbox

    class Generation(ext.Extension):
        """Knows `{% generation %}`, which marks the assistant's text and changes nothing here."""

        tags = {"generation"}  # noqa: RUF012  # Jinja's own declaration

        def parse(self, parser: Any) -> nodes.Node | list[nodes.Node]:
            """Give what is inside."""
            next(parser.stream)
            return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))

    class Bounded(sandbox.ImmutableSandboxedEnvironment):
        """The sandbox, with a clock and with limits on sizes."""

        intercepted_binops = frozenset(("+", "*", "**", "%"))
        concat = staticmethod(count_join("".join))  # of a block or macro

        def check_clock(self) -> None:
            """Refuse a template that runs past its deadline."""
            if time.monotonic() > DEADLINE.get():
                raise make_template_error(f"it takes more than {SECONDS:g} seconds")

        def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
            """Call a function or method of the template's."""
            self.check_clock()
            method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps `format`
            check_arguments([getattr(method, "__self__", None), *args, *kwargs.values()],
                            name=str(getattr(method, "__name__", "")))
            return check_bound(super().call(context, obj, *args, **kwargs))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Add, multiply, raise or format."""
            check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

    environment = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols],
                          finalize=check_bound)
    environment.filters = {name: count_filter(found, name) for name, found in environment.filters.items()}
    environment.filters["tojson"] = write_json_value
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form),
                            "namespace": get_namespace_class()}
    for name in ("lipsum", "cycler", "joiner"):
        environment.globals.pop(name)
    return environment


def get_namespace_class() -> type:
    """Return Jinja's namespace, without names that begin with an underscore."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    class Names(Namespace):
        """What a template may assign to inside a loop."""

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise SecurityError(f"it assigns to {name}")
            super().__setitem__(name, value)

    return Names


def refuse(message: object) -> None:
    """Let a template say that it cannot take the messages."""
    raise InputError(f"the chat template refuses the messages: {str(message)[:500]}", where="messages",
                     remedy="change the messages")


def write_json_value(value: Any, ensure_ascii: bool = False, indent: int | None = None, *,
                     separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """Write a value as JSON, without the escapes that web pages need."""
    check_arguments([value, indent], name="tojson")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def count_filter(filter_: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a filter so that what goes in and what comes out is counted; Jinja's marks on it stay."""
    @wraps(filter_)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        check_arguments([*args, *kwargs.values()], name=name)
        return check_bound(filter_(*args, **kwargs))

    return wrapped


def estimate_letters(value: Any) -> int:
    """Return about how many letters a value has when it is written out; of a huge one, some number above `LARGEST`."""
    total, waiting = 0, [value]
    while waiting and total <= LARGEST:
        one = waiting.pop()
        match one:
            case str() | bytes():
                total += len(one)
            case int():
                total += 1 + one.bit_length() // 3
            case dict():
                total += len(one)
                waiting += [*one.keys(), *one.values()]
            case list() | tuple() | set() | frozenset() | range():
                total += len(one)
                waiting += [] if isinstance(one, range) or total > LARGEST else one
    return total


def check_bound(value: Any) -> Any:
    """Return a value that is not too large."""
    if estimate_letters(value) > LARGEST:
        raise make_template_error("it makes a text or list that is too large")
    return value


def check_arguments(values: Sequence[Any], *, name: str) -> None:
    """Refuse arguments of which a call of a filter or method could make something huge, or work on for long."""
    sizes = [estimate_letters(value) for value in values]
    if max(sizes, default=0) > SLOW.get(name, LARGEST):
        raise make_template_error(f"it works on a text or list that is too large for {name or 'it'}")
    numbers = [abs(value) for value in values if isinstance(value, int)]
    if max(numbers, default=0) > NUMBER:
        raise make_template_error(f"it counts to {max(numbers):,}"[:60])
    if estimate_result(name, values, sizes, max(numbers, default=0)) > PRODUCT:
        raise make_template_error("it works on texts that are too long together")


def estimate_result(name: str, values: Sequence[Any], sizes: Sequence[int], number: int) -> int:
    """Return the most letters that a call can make of its arguments; `number` is the largest of those."""
    texts = [value for value in values if isinstance(value, str)]
    largest = sorted(sizes, reverse=True)
    match name:
        case "replace" if len(texts) > 2:
            return len(texts[0]) + (texts[0].count(texts[1]) + 1) * len(texts[2])
        case "indent" | "expandtabs" | "tojson" | "wordwrap":
            return sum(sizes) + largest[0] * max(number, *map(len, texts[1:]), 0, 0)
        case "format" if texts:
            return len(texts[0]) + texts[0].count("{") * (find_widest(texts[0]) + number + largest[0])
        case "join":  # a list of texts, and what is between them
            return sum(sizes) + max((len(value) for value in values if isinstance(value, list | tuple | dict | range)),
                                    default=largest[0] if largest else 0) * max(map(len, texts), default=0)
        case _:
            return largest[0] * largest[1] if len(texts) > 1 else 0


def find_widest(form: str) -> int:
    """Return the largest number in a format, which may be a width."""
    return max((int(one) if len(one) < 9 else PRODUCT for one in re.findall(r"\d+", form)), default=0)


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    sizes = [estimate_letters(value) if isinstance(value, str | list | tuple) else 0 for value in (left, right)]
    if operator == "%" and isinstance(left, str):
        if "*" in left or left.count("%") * (find_widest(left) + estimate_letters(right)) > PRODUCT:
            raise make_template_error("it pads a text by too much")
    elif any(sizes):
        times = next((value for value in (left, right) if isinstance(value, int)), 1)
        if (sum(sizes) if operator == "+" else max(sizes) * abs(times)) > LARGEST:
            raise make_template_error("it makes a text or list that is too large")
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
        if bits > BITS:
            raise make_template_error("it computes a number that is too large")


def count_join(join: Callable[[Any], str]) -> Callable[[Any], str]:
    """Wrap Jinja's joining of texts (`~`) so that the sum is counted."""
    def joined(parts: Any) -> str:
        found = list(parts)
        if sum(map(estimate_letters, found)) > LARGEST:
            raise make_template_error("it makes a text that is too large")
        return join(found)

    return joined
