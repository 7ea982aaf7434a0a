"""Texts on which tokenizers differ when they split wrongly. Shared by the golden makers and the tests."""

from __future__ import annotations

TEXTS = (
    "",
    "a",
    " ",
    "Hello world",
    " Hello  world ",
    "The capital of France is Paris, isn't it? We'll see; they've said I'm WRONG'LL.",
    "It's 'S 's 'll 'LL don’t can't 'tis",
    "12345",
    "1 22 333 4444 55555, 3.14159e-10, 0x1F, 1,000,000; v2.0.1",
    "a1b2c3 4d5 x²+y³=½ ① ٣٤٥ १२३ 四五六",
    "def f(x: int) -> list[str]:\n    return [f'{i:>03d}' for i in range(x)]  # comment\n",
    'if (a != b && c->d[0] <= 0x7f) { printf("%s\\n", s); }\r\n\t\t} // end\r\n',
    "\tfor\t(;;)\t{\t}\n\n\n\n  \n    x\n\t\n",
    "SELECT * FROM `t` WHERE a='b' -- ok\n<div class=\"x\">&nbsp;</div>",
    '{"key": ["value", 1.5, null, true], "nested": {"a": {"b": {}}}}',
    "a  b   c    d     e      f       g        h",
    "trailing spaces   ",
    "   leading spaces",
    "line\nline\r\nline\rline\n\nline\n \nline \n",
    "mixed \t \n \t tabs",
    "non\u00a0breaking\u2003em\u200bzero\u3000ideographic\u2028line\u2029paragraph\ufeffbom",
    "日本語のテキストです。中文文本,混合 English 和 数字123。한국어 텍스트",
    "Привет, мир! Ёлка. Γειά σου Κόσμε. مرحبا بالعالم שלום עולם नमस्ते दुनिया สวัสดีชาวโลก",
    "café cafe\u0301 naïve Zürich façade ﬁ ligature Å Å",
    "😀 😃😄 🎉🎊 👍🏽 🇩🇪🇫🇷 ❤️ ☕",
    "👨\u200d👩\u200d👧\u200d👦 👩🏽\u200d🚀 🏳️\u200d🌈 👁️\u200d🗨️",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈 𠜎 \U0010ffff",
    "zalgo: Z̸̡͖a̴͇l̷̟g̵̢o̶",
    "control \x00\x01\x07\x1b[31mred\x1b[0m \x7f\x85 end",
    "replacement \ufffd private \ue000 noncharacter \ufffe",
    "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "text<|endoftext|>more <repo_name>x<file_sep>y <|im_end|> <|im_end|>",
    "broken <|im_start <|im_end| > <im_start|> |>",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@example.co.uk C:\\Users\\x ~/.bashrc",
    "supercalifragilisticexpialidocious Donaudampfschifffahrtsgesellschaft llanfairpwllgwyngyll",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!???...---___***===###@@@$$$%%%^^^&&&((([[[{{{<<<",
    "“curly” ‘quotes’ – en — em … ellipsis • bullet → arrow ≤ ≥ ≠ ∞ ∑ √",
    "camelCase PascalCase snake_case kebab-case SCREAMING_CASE i18n a11y",
    "x = 1\n\n\n\n\n\n\n\n\n\ny = 2",
    "1st 2nd 3rd 10th 21st\n1. one\n2. two\n10. ten",
    "$1,234.56 €99 £5 ¥100 50% 1/2 2^10 a_b",
)

# A small text to train a sentencepiece vocabulary on.
TRAINING = (
    "the quick brown fox jumps over the lazy dog and the dog jumps over the quick brown fox again",
    "she sells sea shells by the sea shore and the shells she sells are surely sea shells",
    "how much wood would a woodchuck chuck if a woodchuck could chuck wood",
    "speculative decoding drafts several tokens and the target model verifies them in one forward pass",
    "a token that the target would not have drawn is rejected and the rest of the block is dropped",
    "In 2024 there were 365 or 366 days, 12 months and 52 weeks.",
    "def add(left, right): return left + right",
    "Über allen Gipfeln ist Ruh, in allen Wipfeln spürest du kaum einen Hauch",
    "Hello, World! Hello, hello, hello. What is this? This is a test of the tokenizer.",
)

# Repetitions that make a byte-level vocabulary learn tokens across the borders of words, digits, marks and spaces.
CROSSING = tuple(
    text * 20
    for text in (
        "1234567890",
        "12 34 5678 ",
        "a1b2",
        " 1 2",
        "it's we'll they've I'm 'S 'LL ",
        "word word  word   word",
        "\n\n\n \n\r\n\t\t ",
        "x.y,z!?;:)) ((",
        "foo_bar-baz/qux",
        "漢字かな 漢字",
        "e\u0301 x²½³",
        " !!! ... ???",
    )
)
