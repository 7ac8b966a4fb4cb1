// SPDX-License-Identifier: MIT
// Templates by name, for files without one or for those who want another. They write what the
// models were trained with; a system message is left out where it is absent, and where a model
// knows none it stands before the first content.
#include "engine/chat/chat_internal.h"

static const char chatml[] =
    "{%- for message in messages -%}\n"
    "    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static const char llama3[] =
    "{{- bos_token -}}\n"
    "{%- for message in messages -%}\n"
    "    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}\n"
    "    {{- message.content.strip() + '<|eot_id|>' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\n"
    "{%- endif -%}";

static const char phi3[] =
    "{%- for message in messages -%}\n"
    "    {{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}";

static const char zephyr[] =
    "{%- for message in messages -%}\n"
    "    {{- '<|' + message.role + '|>\\n' + message.content + eos_token + '\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}";

// The system message stands before the first content, as all of Gemma's templates that know one
// have it.
static const char gemma[] =
    "{%- set opening = '' -%}{%- set turns = messages -%}\n"
    "{%- if messages and messages[0].role == 'system' -%}\n"
    "    {%- set opening = messages[0].content + '\\n\\n' -%}{%- set turns = messages[1:] -%}\n"
    "{%- endif -%}\n"
    "{%- for turn in turns -%}\n"
    "    {{- '<start_of_turn>' + ('model' if turn.role == 'assistant' else turn.role) + '\\n' -}}\n"
    "    {{- (opening if loop.first else '') + turn.content.strip() + '<end_of_turn>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}";

static const char llama2[] =
    "{%- set opening = '' -%}{%- set turns = messages -%}\n"
    "{%- if messages and messages[0].role == 'system' -%}\n"
    "    {%- set opening = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' -%}\n"
    "    {%- set turns = messages[1:] -%}\n"
    "{%- endif -%}\n"
    "{%- for turn in turns -%}\n"
    "    {%- if turn.role == 'assistant' -%}\n"
    "        {{- ' ' + turn.content.strip() + ' ' + eos_token -}}\n"
    "    {%- else -%}\n"
    "        {{- bos_token + '[INST] ' + (opening if loop.first else '') -}}\n"
    "        {{- turn.content.strip() + ' [/INST]' -}}\n"
    "    {%- endif -%}\n"
    "{%- endfor -%}";

static const char mistral[] =
    "{{- bos_token -}}\n"
    "{%- set opening = '' -%}{%- set turns = messages -%}\n"
    "{%- if messages and messages[0].role == 'system' -%}\n"
    "    {%- set opening = messages[0].content + '\\n\\n' -%}{%- set turns = messages[1:] -%}\n"
    "{%- endif -%}\n"
    "{%- for turn in turns -%}\n"
    "    {%- if turn.role == 'assistant' -%}\n"
    "        {{- ' ' + turn.content.strip() + eos_token -}}\n"
    "    {%- else -%}\n"
    "        {{- '[INST] ' + (opening if loop.first else '') + turn.content + '[/INST]' -}}\n"
    "    {%- endif -%}\n"
    "{%- endfor -%}";

const chat_builtin chat_builtins[] = {
    {"chatml", chatml},   {"gemma", gemma}, {"llama2", llama2}, {"llama3", llama3},
    {"mistral", mistral}, {"phi3", phi3},   {"zephyr", zephyr},
};

const size_t chat_builtin_count = sizeof chat_builtins / sizeof *chat_builtins;
