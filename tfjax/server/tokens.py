"""POST /tokenize and /detokenize, in vLLM's shape."""

from __future__ import annotations

from tfjax.server.chat import chat_templates
from tfjax.server.errors import bad_request
from tfjax.server.fields import check_fields
from tfjax.server.generation import check_length, check_token
from tfjax.server.jsonbody import convert, parse
from tfjax.server.model import Model
from tfjax.server.replies import DetokenizeReply, TokenizeReply
from tfjax.server.schemas import DetokenizeRequest, TokenizeRequest
from tfjax.server.templates import checked_variables


def tokenize(body: bytes, model: Model) -> tuple[TokenizeReply, list[str]]:
    """Token ids of a text or of messages, and the names of ignored fields."""
    raw = parse(body)
    ignored = check_fields(raw, TokenizeRequest)
    request = convert(raw, TokenizeRequest)
    model.checked_name(request.model)
    tokenizer = model.engine.tokenizer
    text = request.content if request.prompt is None else request.prompt
    if [request.prompt, request.content, request.messages].count(None) != 2:
        raise bad_request("Give one of 'prompt' (or 'content', which is the same) and 'messages'.", "prompt")
    if text is not None:
        check_length(len(text), model.engine.context, "prompt" if request.content is None else "content")
        ids = tokenizer.encode(text, add_bos=None if request.add_special_tokens is not False else False)
    else:
        templates = chat_templates(model)
        variables, unread = checked_variables(request.chat_template_kwargs or {}, templates)
        ignored += unread
        add = request.add_generation_prompt is not False
        assert request.messages is not None
        text = templates.render(request.messages, variables, add_generation_prompt=add)
        check_length(len(text), model.engine.context, "messages")
        ids = tokenizer.encode(text, add_bos=False)
    strings = [tokenizer.token_text(token) for token in ids] if request.return_token_strs else None
    return TokenizeReply(len(ids), model.engine.context, ids, strings), ignored


def detokenize(body: bytes, model: Model) -> tuple[DetokenizeReply, list[str]]:
    """The text of token ids, and the names of ignored fields."""
    raw = parse(body)
    ignored = check_fields(raw, DetokenizeRequest)
    request = convert(raw, DetokenizeRequest)
    model.checked_name(request.model)
    check_length(len(request.tokens), model.engine.context, "tokens", "tokens")
    for token in request.tokens:
        check_token(token, model.engine.tokenizer.vocab_size, "tokens")
    return DetokenizeReply(model.engine.tokenizer.decode(request.tokens)), ignored
