"""Chat templates in the forms of families of models, with what these use of Jinja."""

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + "
    "system_message + '\n<</SYS>>\n\n' + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "1 Jan 2025" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\nToday: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- "Functions:" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}
{%- endif %}
{{- system + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif message.content is mapping or message.content is iterable %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" + message.content | tojson }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
MISTRAL = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system, rest = messages[0]["content"], messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for m in rest if m.role != "tool" and not (m.tool_calls is defined and m.tool_calls) %}
    {%- if (m["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("users and assistants take turns") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for m in rest %}
    {%- if m["role"] == "user" %}
        {%- if loop.last and system is defined %}
            {{- "[INST] " + system + "\n\n" + m["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + m["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"] | trim + eos_token }}
    {%- else %}
        {{- raise_exception("there is no role " ~ m.role) }}
    {%- endif %}
{%- endfor %}
{{- "" if users[-1] == rest[-1] else users | length }}
"""
QWEN2 = """\
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\nYou help.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role in ["user", "system"] or message.role == "assistant" and not message.x %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
QWEN3 = """\
{%- set ns = namespace(searches=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searches and message.role == "user" and message.content is string
        and not message.content.startswith('<tool_response>') %}
        {%- set ns.searches = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or not loop.last and thoughts) %}
            {{- '<|im_start|>assistant\n<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' }}
            {{- content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""
GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set before = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set before = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set before, turns = "", messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (before if loop.first else "") }}
    {%- if message['content'] is iterable and message['content'] is not string -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- else -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""
PHI3 = (
    "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}"
    "{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}"
    "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}"
    "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
ZEPHYR = """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""
VICUNA = (
    "{% set names = {'user': 'USER: ', 'assistant': ' ASSISTANT: '} -%}\n"
    "{% for m in messages -%}\n  {%- if m.role == 'system' %}{{ m.content ~ ' ' }}"
    "{% continue %}{% endif -%}\n"
    "{{ names.get(m.role, m.role | capitalize) ~ m.content | replace('\n', ' ') }}"
    "{{ eos_token if m.role == 'assistant' }}\n{%- endfor %}"
    "{{ ' ASSISTANT:' if add_generation_prompt else '' }}"
)
DEEPSEEK = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(is_first=true, is_output_first=true, system='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}
{%- if ns.is_first %}{% set ns.system = ns.system + message['content'] %}
{%- set ns.is_first = false %}
{%- else %}{% set ns.system = ns.system + '\n\n' + message['content'] %}{%- endif %}
{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none %}
{%- set content = message['content'] %}{% if '</think>' in content %}
{%- set content = content.split('</think>') | last %}{% endif %}
{{- '<|Assistant|>' + content + '<|end▁of▁sentence|>' }}{%- endif %}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}
"""
COMMAND = """\
{%- macro turn(role, text) -%}
<|START_OF_TURN_TOKEN|><|{{ role | upper }}_TOKEN|>{{ text }}<|END_OF_TURN_TOKEN|>
{%- endmacro -%}
{%- macro listed(items) %}{% for item in items recursive -%}
{{ loop.depth }}.{{ loop.index }}/{{ loop.length }} {{ item.content | first | default('-', true) }}
{%- if item.parts %}{{ loop(item.parts) }}{% endif %}{{ ", " if not loop.last }}
{%- endfor %}{% endmacro -%}
{{ bos_token }}{% set names = {"user": "user", "assistant": "chatbot"} %}
{% for message in messages %}
{% filter trim %}{{ turn(names[message.role] or "system", message.content) }}{% endfilter %}
{% endfor %}
{{ listed(messages) }}
{% for role, group in messages | groupby("role") %}{{ role }}{{ group | count }} {% endfor %}
{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}
"""
GRANITE = """\
{%- macro wrapped(role) -%}{{ caller(role[:1]) }}{%- endmacro -%}
{%- set allowed = ["system", "user", "assistant"] -%}
{%- for message in messages -%}
{%- if message.role not in allowed -%}{{ raise_exception("unknown: " ~ message.role) }}{%- endif -%}
<|start_of_role|>{{ message.role }}<|end_of_role|>
{%- generation %}{{ message.content }}{% endgeneration -%}<|end_of_text|>
{% endfor -%}
{% call(letter) wrapped(messages[0].role) %}({{ letter }}){% endcall %}
{%- if documents -%}{{ documents | tojson(separators=(",", ":"), sort_keys=true) }}{%- endif -%}
{{ messages | tojson(indent=2, ensure_ascii=false) }}
{{ {"roles": messages | map(attribute="role") | unique | sort | list, "n": 1.5} | tojson }}
{{ dict(a=1, **{"b": 2}) | dictsort }}{{ messages | map("length") | sum }}
{{ "%s of %d" | format(messages[0].role, messages | length) }}
{{- (messages | batch(2) | list | length) }}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}
"""
TEMPLATES = {
    "llama 2": LLAMA2,
    "llama 3": LLAMA3,
    "mistral": MISTRAL,
    "qwen 2": QWEN2,
    "qwen 3": QWEN3,
    "gemma": GEMMA,
    "phi 3": PHI3,
    "zephyr": ZEPHYR,
    "vicuna": VICUNA,
    "deepseek": DEEPSEEK,
    "command": COMMAND,
    "granite": GRANITE,
    "namespaces": (
        "{%- set ns = namespace(count=0, roles=[]) -%}\n    {%- for m in messages %}\n"
        "        {%- set ns.count = ns.count + m.content | length %}\n"
        "        {%- if loop.last %}{% break %}{% endif -%}\n{{ m.role | upper ~ ns.count }}\n"
        "    {%- endfor %}\n{{- messages | tojson }}"
        "{{ messages | map(attribute='role') | join(',') }}"
        "{%- if tools is not none %}tools{% endif %}{{ strftime_now('%Y') | length }}"
    ),
    "generation": (
        "{% macro turn(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}{% for m in messages %}\n"
        "{% if m.role == 'assistant' %}{% generation %}{{ turn(m) }}{% endgeneration %}\n"
        "{% else %}{{ turn(m) }}\n{% endif %}\n{% endfor %}{{ eos_token }}"
        "{{ messages[0].get('name', 'nobody') }}{{ messages[::-1][0].content[:3] }}"
    ),
}
"""Templates by names; most are short forms, in words of our own, of those of families."""
