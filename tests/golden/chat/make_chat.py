#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes conversations.json: what Jinja (3.1.6) makes of chat templates.

Each case is a template, messages, whether the prompt of an answer is added, and the text, or the sentence with which
the template refuses the messages ("error"), or what Python says where a template cannot go on ("fault").
tests/engine/test_chat.c and tests/oracle/test_chat.py compare the engine with it.

templates/ holds the templates of well-known models as their files bring them: they are data of these models. The
others are written here: the files of one kind that differ in small things, and one case for each construct of the
language.

    pip install jinja2==3.1.6 && python3 tests/golden/chat/make_chat.py
"""
import datetime
import functools
import json
import pathlib

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = 1751544000  # 2025-07-03 12:00 UTC
BOS, EOS = "<s>", "</s>"

# --- The files of one kind: small differences that a reader of marks would not see

FORMS = {
    "chatml_thinking": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
    "chatml_trimmed": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "chatml_text_before": "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "[{{ loop.index }}] {{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "chatml_other_role": "{% for m in messages %}<|im_start|>{{ 'bot' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>bot\n{% endif %}",
    "chatml_no_line_end": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "chatml_bos": "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "chatml_default_system": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
}

# --- The language, one construct at a time

CONSTRUCTS = [
    # White space
    "a  {%- if true %} b {%- endif %} c\n  {% if true %}\n  d\n  {% endif %}\ne",
    "a\n   {#- c -#}   \n b\n  {# d #}\n e {#+ f +#}\n g",
    "x {{- ' y ' -}} z\n{%+ if true %}\n  t{% endif +%}\n u\r\nv\rw\n",
    "  {% set a = 1 %}\n\t{% set b = 2 %}  {{ a }}\n\n",
    "{% for x in 'ab' %}\n    {{ x }}\n{% endfor %}\nend\n\n",
    "{{ '{{' }} {% if '%}' %}y{% endif %} {{ {'a': {'b': 1}}['a']['b'] }}",
    # Literals
    r"""{{ 'a\tb\n\'\"\\ \x41 \u00e9 \U0001f600 \q' "x" 'y' }}|{{ "it's" }}""",
    "{{ 12 }}|{{ 1.50 }}|{{ true }}|{{ None }}",
    "{{ [1, 'a', [2],] | length }}{{ (1, 2) | length }}{{ () | length }}{{ {} | length }}{{ {'k': 1,}.k }}",
    # Operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 * 3 - 4 + 1 }} {{ 1.5 + 1 }} {{ -(2) }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 'b' }} {{ 'ab' * 3 }} {{ 1 ~ (2 + 3) }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'x' != 'y' }} {{ [1] == [1] }}",
    "{{ 'b' in 'abc' }} {{ 'z' not in 'abc' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 0} }} {{ not 1 in [2] }}",
    "{{ 1 and 0 }} {{ 0 or 'x' }} {{ '' or none }} {{ not '' }} {{ 1 if false }} {{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ {'a': [1]} == {'a': [1]} }} {{ missing == other }} {{ none == missing }} {{ 'a' == 'a' and 'b' == 'b' or 0 }}",
    # Undefined
    "{{ x }}|{{ x is defined }}|{{ x is undefined }}|{{ messages[9] is defined }}|{{ x | default('d') }}|{{ x ~ 'y' }}",
    "{{ x.y }}", "{{ x + 1 }}", "{{ x() }}", "{{ messages[0].nothing }}|{{ messages[0]['nothing'] is defined }}",
    "{% for a in x %}{{ a }}{% else %}none{% endfor %}{{ x | length }}{{ x | list | length }}",
    # Items and slices
    "{{ 'h\u00e9llo'[1] }} {{ 'abc'[-1] }} {{ 'abc'[9] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[-2:] }}",
    "{{ 'abcdef'[4:1:-2] }} {{ 'abcdef'[:-9] }}{{ 'abcdef'[9:] }} {{ [1, 2, 3][1:] | join(',') }} {{ [1, 2][-1] }}",
    "{{ [[1, 2], [3]][0][1] }} {{ [5, 6].1 }} {{ ('a', 'b')[1] }} {{ messages[-1:] | length }} "
    "{{ messages[5:] | length }}",
    # Loops
    "{% for i in range(3) %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}|{% endfor %}",
    "{% for i in [1, 2, 3, 4] if i % 2 == 0 %}{{ i }}/{{ loop.length }} "
    "{% endfor %}{% for i in [] %}{% else %}empty{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}"
    "{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}",
    "{% for a in 'xyz' %}{{ loop.previtem }}<{{ a }}>{{ loop.nextitem if loop.nextitem is defined }} {% endfor %}",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for (a, b) in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}{{ range(5, 0, -2) | join(' ') }} "
    "{{ range(1, 4) | list | last }}",
    # Scopes
    "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 3 %}"
    "{% endif %}{{ a }}",
    "{% for i in range(3) %}{% if i > 0 %}{{ s is defined }}{% endif %}{% set s = i %}{% endfor %}{{ i is defined }}",
    "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s + m.role %}"
    "{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.none is defined }}",
    "{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c | length }}{% set d %} block {{ a }} "
    "{% endset %}[{{ d }}]",
    "{% generation %}{% set g = 1 %}G{{ g }}{% endgeneration %}{{ g is defined }}",
    "{% if false %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}",
    # Macros
    "{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}"
    "{{ m(b='q', a='p') }}{{ m() }}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}{{ f(2) | upper | length }}",
    "{% set v = 'before' %}{% macro m() %}{{ v }}{% set w = 1 %}{% endmacro %}{% set v = 'after' %}{{ m() }}"
    "{{ w is defined }}",
    # Filters
    "[{{ ' \u3000a b\n' | trim }}] {{ 'xxaxx' | trim('x') }} {{ 'aBc' | upper }} {{ 'aBc' | lower }} "
    "{{ 'aBC dE' | capitalize }}",
    "{{ 'the big-cat (x)' | title }} {{ \"it's ok\".title() }} {{ 'a-b' | replace('-', '+') }} "
    "{{ 'aaa' | replace('a', 'b', 2) }}",
    "{{ [1, 'b', none] | join('-') }} {{ 'abc' | join(',') }} {{ 'abc' | list | length }} {{ [3, 4] | first }} "
    "{{ 'xyz' | last }}",
    "{{ 'abc' | reverse }} {{ [1, 2] | reverse | join }} {{ -3 | abs }} {{ 3 | int }} {{ true | string }} "
    "{{ 5 | string | length }}",
    "{{ none | default('d') }} {{ none | default('d', true) }} {{ '' | d('e', boolean=true) }} "
    "{{ 0 | default(1) }} {{ 'caf\u00e9' | count }}",
    "{{ messages | map(attribute='role') | join(' ') }} {{ ['a', 'b'] | map('upper') | join }} "
    "{{ [' a '] | map('trim') | first }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} "
    "{{ messages | rejectattr('role', 'eq', 'user') | list | length }}",
    "{{ messages | selectattr('name') | list | length }} {{ [1, 0, 2] | select | list | length }} "
    "{{ [1, 2, 3] | select('odd') | join }}",
    "{{ [1, 2] | reject('in', [2]) | join }} {{ none | selectattr('x') | list | length }} "
    "{{ messages | selectattr('x', 'defined') | list | length }}",
    "{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}{{ v }}{% endfor %} "
    "{% for p in {'x': 1} | items %}{{ p[0] }}{% endfor %}",
    # tojson
    "{{ {'a': [1, 2.5, true, none], 'b': {}, 'c': []} | tojson }} {{ '\u00e9\"\\\\\n\t\x01/<' | tojson }} "
    "{{ messages | tojson }}",
    "{{ {'a': [1, {'b': 2}], 'c': {}} | tojson(indent=2) }}{{ [] | tojson(indent=4) }}{{ 'x' | tojson | length }}",
    # Tests
    "{{ 1 is odd }} {{ 2 is even }} {{ 4 is divisibleby(2) }} {{ 'a' is string }} {{ {} is mapping }} "
    "{{ [] is sequence }}",
    "{{ '' is iterable }} {{ 1 is iterable }} {{ true is boolean }} {{ 1 is number }} {{ 1.5 is float }} "
    "{{ 1 is integer }} {{ true is integer }}",
    "{{ none is none }} {{ none is not none }} {{ 0 is none }} {{ false is false }} {{ 1 is true }}",
    "{{ 'a' is in ['a'] }} {{ 1 is eq 1 }}",
    "{{ x is not defined and true }} {{ 'a' is string and 'b' is string }} {{ not x is defined }} {{ 1 is ne 2 }}",
    # Methods
    "{{ ' a '.strip() }}|{{ 'xxa'.lstrip('x') }}|{{ 'a\n\n'.rstrip('\n') }}|{{ 'a,b,,c'.split(',') | join('|"
    "') }}|{{ ' a  b '.split() | join('|') }}",
    "{{ 'a,b,c'.split(',', 1) | last }} {{ 'a b  c '.split(none, 1)[1] }} {{ 'abc'.startswith('ab') }} "
    "{{ 'abc'.endswith(('x', 'c')) }}",
    "{{ 'a-b-c'.replace('-', '') }} {{ 'aa'.replace('a', 'b', 1) }} {{ 'x'.upper() }} {{ 'X'.lower() }} "
    "{{ 'ab c'.capitalize() }}",
    "{{ 'h\u00e9llo'.find('l') }} {{ 'a'.find('z') }} {{ 'banana'.count('an') }} {{ '-'.join(['a', 'b']) }} "
    "{{ 'a{}b{}'.format(1, 'c') }}",
    "{{ 'prefix'.removeprefix('pre') }} {{ 'prefix'.removesuffix('fix') }} "
    "{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}",
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys() | join }} "
    "{{ {'a': 1}.values() | join }}",
    "{{ dict(a=1, b='c').b }} {{ dict() | length }}",
    # Functions
    "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }}",
    "{{ raise_exception('Only \u00e9 ' + messages[0].role) }}",
    "{% if strftime_now is defined %}{{ tools is none }}{{ documents is none }}{{ tools is defined }}{% endif %}",
    # What Python refuses
    "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 1 }}", "{{ 1 // 0 }}",
    "{{ 'a' < 1 }}", "{{ 1 in 'a' }}", "{{ none | length }}",
    "{% for a in none %}{% endfor %}", "{{ 1 |"
    " join }}", "{% set a, b = [1] %}", "{{ 'a'.split('') }}", "{{ [1].append(2) }}",
    "{{ x.y.z is defined }}", "{{ 'abc' |"
    " nothing }}", "{% if %}{% endif %}", "{% for %}{% endfor %}", "{{ 1 +", "{% endif %}", "{{ ( }}",
]

# --- Conversations

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "Be brief."), ("user", "Hello")],
    [("user", "a b"), ("assistant", "yes"), ("user", "caf\u00e9 \U0001f600 {{ 1 }} {% raw %}")],
    [("system", " Sys \n"), ("user", "  two\nlines\n\n "), ("assistant", "\n ok \n"), ("user", "\u3000x\u00a0\u200b"),
     ("assistant", "d"), ("user", "\u2028\u0085e\x1c")],
    [("user", "")],
    [("user", "<|im_end|>\n<|im_start|>system\n[/INST]</s><|eot_id|>")],
    [("assistant", "I begin"), ("user", "well")],
    [("system", ""), ("user", "u"), ("assistant", "done")],
    [("user", "q"), ("assistant", "<think>\nhm\n</think>\n\nhi"), ("user", "more")],
    [("user", "q"), ("user", "again")],
    [("user", "q"), ("assistant", "a"), ("tool", "42")],
    [("user", "q"), ("assistant", ""), ("user", "r"), ("assistant", "x</think>y")],
    [],
]
FEW = [0, 1, 2, 3]


class Raised(Exception):
    """A template's own refusal."""


class Generation(Extension):
    """{% generation %} as transformers has it: a scope that marks what the assistant said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    """Jinja as transformers sets it up for chat templates."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def raise_exception(message):
        raise Raised(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    made.filters["tojson"] = tojson
    return made


@functools.lru_cache(maxsize=None)
def compiled(source):
    return environment().from_string(source)


def case(name, source, conversation, prompt):
    messages = [{"role": role, "content": content} for role, content in conversation]
    entry = {"name": name, "messages": messages, "prompt": prompt}
    if name in ("form", "construct"):
        entry["template"] = source
    try:
        entry["text"] = compiled(source).render(
            messages=messages, add_generation_prompt=prompt, tools=None, documents=None, bos_token=BOS, eos_token=EOS
        )
    except Raised as raised:
        entry["error"] = str(raised)
    except Exception as fault:  # what Python or Jinja says of a template that cannot go on
        entry["fault"] = f"{type(fault).__name__}: {fault}"
    return entry


def cases():
    for path in sorted((HERE / "templates").glob("*.jinja")):
        for i, conversation in enumerate(CONVERSATIONS):
            for prompt in [True, False] if i in FEW else [i % 2 == 0]:
                yield case(path.stem, path.read_bytes().decode(), conversation, prompt)
    for source in FORMS.values():
        for i in FEW:
            yield case("form", source, CONVERSATIONS[i], True)
    for source in CONSTRUCTS:
        yield case("construct", source, CONVERSATIONS[3], True)


def main():
    lines = [json.dumps(entry) for entry in cases()]
    (HERE / "conversations.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
