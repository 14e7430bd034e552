"""Tools, and chat templates in the ways in which models write calls of them."""

from relaxpy.plugins.llm.answer_parts import Part

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"enum": [1, 7]}},
                "required": ["city", "days"],
                "additionalProperties": False,
                "$defs": {"city": {"type": "string", "maxLength": 8}},
            },
        },
    },
    {"type": "function", "function": {"name": "get-time"}},
]
NAMES = frozenset({"weather", "get-time"})
HEAD = "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}"
BODY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "{% for call in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
JSON = '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
OPEN = "{% if enable_thinking is defined %}<think>\n{% if not enable_thinking %}\n</think>\n\n"
TEMPLATES = {
    "hermes": HEAD + BODY.replace("CALL", f"<tool_call>\n{JSON}\n</tool_call>"),
    "mistral": HEAD + BODY.replace("CALL", f"[TOOL_CALLS] [{JSON}]"),
    "mistral by names": HEAD
    + BODY.replace(
        "CALL", "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}"
    ),
    "llama": HEAD
    + '{% if tools %}{"name": function name, "parameters": dictionary of arguments}{% endif %}'
    + BODY.replace("CALL", JSON.replace("arguments", "parameters", 1)),
    "phi": HEAD + "<|tool|>" + BODY.replace("CALL", f"<|tool_call|>[{JSON}]<|/tool_call|>"),
    "json": HEAD + BODY.replace("CALL", JSON),
}
THINKS = (
    "{# </think> #}" + TEMPLATES["hermes"] + "{% if enable_thinking is defined %}<think>\n"
    "{% if not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)
HIDDEN = ["[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|tool_call|>", "<|/tool_call|>"]
SHOWN = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
ONE = '{"name": "weather", "arguments": {"city": "Rome", "days": 1}}'
TWO = '{"name": "get-time", "arguments": {}}'
CALLS = [Part("call", '{"city": "Rome", "days": 1}', "weather"), Part("call", "{}", "get-time")]
ASK = [{"role": "user", "content": "hello cat"}]
