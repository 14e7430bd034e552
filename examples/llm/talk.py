"""Continue a text, several texts at once, and a conversation.

python examples/llm/talk.py MODEL [--target numpy]
"""

from __future__ import annotations

import argparse

import relaxpy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--target", help="native or numpy")
    options = parser.parse_args()
    lm = relaxpy.llm.load(options.model, target=options.target)
    for piece in lm.stream("Once upon a time", max_tokens=40):
        print(piece, end="", flush=True)
    print()
    # Several prompts run together; a temperature above 0 draws tokens at random.
    for text in lm.generate(["The sun", "The moon"], max_tokens=20, temperature=0.8, seed=0):
        print(text)
    messages = [{"role": "user", "content": "Say hello."}]
    print(lm.generate(messages, max_tokens=40))


if __name__ == "__main__":
    main()
