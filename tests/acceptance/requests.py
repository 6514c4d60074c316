"""What the public acceptance runner asks over HTTP, and what the answer must have. Written from its descriptions."""

import base64
import struct
import zlib
from typing import Any

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tell the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def say(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Make a message item."""
    return {"type": "message", "role": role, "content": content, **fields}


def to_png(side: int = 32) -> str:
    """Draw a red square, as a data URL."""
    rows = (b"\0" + b"\xff\0\0" * side) * side
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


ANSWERED = {
    "basic-response": [say("user", "Say hello in 3 words.")],
    "assistant-phase": [
        say("assistant", "I look it up.", phase="commentary"),
        say("assistant", "It is Paris.", phase="final_answer"),
        say("user", "Thank you. Say hello to Ada."),
    ],
    "system-prompt": [say("system", "Be brief."), say("user", "What is the capital of France?")],
    "image-input": [
        say("user", [
            {"type": "input_text", "text": "What is in this image? Answer in one word."},
            {"type": "input_image", "image_url": to_png()},
        ])
    ],
    "multi-turn": [
        say("user", "My name is Ada."),
        say("assistant", "Hello Ada, nice to meet you."),
        say("user", "What is my name?"),
    ],
}  # fmt: skip
A_FILE = [
    say("user", [
        {"type": "input_text", "text": "Say hello."},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQK"},
    ])
]  # fmt: skip
COUNTING = [say("user", "Count from 1 to 5.")]
FORECAST = [say("user", "What is the weather in Oslo?")]
