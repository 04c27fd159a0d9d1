#!/usr/bin/env python3
"""What Python's Jinja2 renders, in the environment of transformers' chat templates.

    python3 tools/oracle/jinja.py model/tokenizer/internal/jinja/testdata

rewrites jinja2.jsonl in that directory: each line has a template, and gets the text that it
renders with variables.json, or null if it fails. To add a case, add a line with a template.

    python3 tools/oracle/jinja.py model/tokenizer/testdata/published

does the same for chats.jsonl, whose lines have the file of a template and variables.
"""
import json, pathlib, sys
import jinja2, jinja2.ext, jinja2.nodes, jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception


def render(template, variables):
    try:
        return env.from_string(template).render(**variables)
    except Exception:
        return None


def rewrite(path, text_and_variables):
    """Sets "want" in each line of a file."""
    with open(path) as lines:
        cases = [json.loads(line) for line in lines]
    with open(path, "w") as out:
        for case in cases:
            case["want"] = render(*text_and_variables(case))
            out.write(json.dumps(case, ensure_ascii=False) + "\n")


directory = pathlib.Path(sys.argv[1])
if (directory / "chats.jsonl").exists():
    rewrite(directory / "chats.jsonl", lambda case: ((directory / case["template"]).read_text(), case["variables"]))
else:
    variables = json.loads((directory / "variables.json").read_text())
    rewrite(directory / "jinja2.jsonl", lambda case: (case["template"], variables))
