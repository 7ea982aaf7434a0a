"""A tokenizer that needs no file: each byte is a token, and a few special tokens are written by name."""

from __future__ import annotations

from collections.abc import Iterable

BOS, EOS, IM_START, IM_END = 256, 257, 258, 259
SPECIAL = {BOS: "<s>", EOS: "</s>", IM_START: "<|im_start|>", IM_END: "<|im_end|>"}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class ByteTokenizer:
    """Each byte is a token; special tokens are written by name."""

    vocab_size = 260
    bos_id: int | None = BOS
    eos_ids: tuple[int, ...] = (EOS, IM_END)
    bos_token = "<s>"
    eos_token = "</s>"

    def __init__(self, chat_template: str | None = CHATML, *, add_bos: bool = False) -> None:
        self.chat_template = chat_template
        self._add_bos = add_bos

    def encode(self, text: str, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        ids: list[int] = [BOS] if (self._add_bos if add_bos is None else add_bos) else []
        while text:
            token = next((t for t, name in SPECIAL.items() if parse_special and text.startswith(name)), None)
            if token is not None:
                ids.append(token)
                text = text[len(SPECIAL[token]) :]
            else:
                ids.extend(text[0].encode())
                text = text[1:]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def token_text(self, token: int) -> str:
        return SPECIAL.get(token) or self.token_bytes(token).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        return token in SPECIAL
