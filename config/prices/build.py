#!/usr/bin/env python3
"""Writes the built-in price list from a public price map.

    pip download --no-deps litellm && unzip -o litellm-*.whl 'litellm/model_prices*'
    config/prices/build.py litellm/model_prices_and_context_window_backup.json 1.109.1 2026-11-21 > prices.new &&
      mv prices.new config/prices/builtin.tsv

Only facts are taken: names and prices of models that are not gone for more than a year. Prices become US dollars per million
tokens (or seconds, characters, pictures, searches) with at most six decimals, names lower case, rows sorted by the bytes of the name, because the gateway searches
the file where it lies.
"""
import json
import re
import sys
from decimal import Decimal

# The map's provider -> the name shown in our list.
PROVIDERS = {
    "openai": "openai", "text-completion-openai": "openai", "azure": "azure", "azure_ai": "azure", "anthropic": "anthropic",
    "bedrock": "bedrock", "bedrock_converse": "bedrock", "gemini": "google", "vertex_ai": "vertex",
    "vertex_ai-language-models": "vertex", "vertex_ai-anthropic_models": "vertex", "vertex_ai-mistral_models": "vertex",
    "vertex_ai-llama_models": "vertex", "vertex_ai-embedding-models": "vertex", "vertex_ai-deepseek_models": "vertex",
    "vertex_ai-qwen_models": "vertex", "vertex_ai-openai_models": "vertex", "mistral": "mistral", "codestral": "mistral",
    "xai": "xai", "deepseek": "deepseek", "groq": "groq", "cohere": "cohere", "cohere_chat": "cohere",
    "together_ai": "together", "fireworks_ai": "fireworks", "fireworks_ai-embedding-models": "fireworks",
    "perplexity": "perplexity", "cerebras": "cerebras", "voyage": "voyage", "ai21": "ai21", "moonshot": "moonshot",
    "zai": "zai", "minimax": "minimax", "sambanova": "sambanova", "dashscope": "dashscope", "deepinfra": "deepinfra",
    "nebius": "nebius", "hyperbolic": "hyperbolic", "openrouter": "openrouter",
}
MODES = {"chat", "responses", "completion", "embedding", "audio_transcription", "audio_speech", "image_generation", "image_edit", "realtime"}
COLUMNS = ["input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
           "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
           "output_cost_per_reasoning_token"]
TIERS = {"priority": "_priority", "flex": "_flex", "batch": "_batches"}
# What is no text, under the names of our list.
MEDIA = {"audio_in": "input_cost_per_audio_token", "audio_cached": "cache_read_input_audio_token_cost",
         "image_in": "input_cost_per_image_token", "video_in": "input_cost_per_video_token",
         "audio_out": "output_cost_per_audio_token", "image_out": "output_cost_per_image_token",
         "second": "input_cost_per_second", "character": "input_cost_per_character", "image": "output_cost_per_image"}


def per_million(value):
    """Dollars per token as dollars per million tokens, exactly; floats are read as they are printed."""
    price = (Decimal(repr(value)) * 1_000_000).quantize(Decimal("0.000001"))
    text = format(price, "f").rstrip("0").rstrip(".")
    return text or "0"


def cell(value):
    return "-" if value is None else per_million(value)


def written_long(entry, end=""):
    """The longer of a cache's times: an hour at one provider, twelve at another."""
    column = "cache_creation_input_token_cost_above"
    return entry.get(f"{column}_1hr{end}") or entry.get(f"{column}_12hr{end}") or None


def long_requests(entry, end=""):
    """`tokens:input:output:cache_read:cache_write:cache_write_1h` of the first step, or nothing."""
    steps = re.compile(rf"^input_cost_per_token_above_(\d+)k_tokens{end}$")
    tiers = sorted(int(match.group(1)) for match in map(steps.match, entry) if match)
    if not tiers:
        return None
    step = f"_above_{tiers[0]}k_tokens{end}"
    above = [entry.get(f"{column}{step}") for column in COLUMNS[:4]] + [written_long(entry, step)]
    return ":".join([str(tiers[0] * 1000)] + ["-" if not value else per_million(value) for value in above])


def in_proportion(price, tier_input):
    """What a tier that says only its input's price takes for output: the same share of the usual one."""
    if not price[0] or not price[1]:
        return price[1] or 0.0
    return float(Decimal(repr(price[1])) * Decimal(repr(tier_input)) / Decimal(repr(price[0])))


def row(name, entry):
    price = [entry.get(column) for column in COLUMNS]
    price[4] = written_long(entry)
    media = {name: entry[column] for name, column in MEDIA.items() if entry.get(column)}
    search = entry.get("search_context_cost_per_query") or {}
    if search.get("search_context_size_medium"):
        media["web_search"] = search["search_context_size_medium"]
    if price[0] is None or (not price[0] and not price[1]):
        # Charged by something else than tokens, or free.
        if not media or price[0] is not None:
            return None
        price = [None] * 6
    else:
        price[1] = price[1] or 0.0
    # What costs the same as the general rate is left out.
    if price[5] == price[1]:
        price[5] = None
    if price[2] == price[0]:
        price[2] = None
    # A written cache that costs nothing beside the tokens themselves is charged as input.
    for column in (3, 4):
        if not price[column]:
            price[column] = None
    cells = [cell(value) for value in price]
    above = long_requests(entry)
    if above:
        cells.append(above)
    for tier, end in TIERS.items():
        if price[0] is None or entry.get(f"input_cost_per_token{end}") is None:
            continue
        rates = [entry.get(f"{column}{end}") for column in COLUMNS[:4]] + [written_long(entry, end)]
        rates[1] = rates[1] or in_proportion(price, rates[0])
        rates[3] = rates[3] or None
        above = long_requests(entry, end)
        cells.append(":".join([tier, *map(cell, rates), *([above] if above else [])]))
    cells.extend(f"{name}:{per_million(value)}" for name, value in media.items())
    return [name.lower(), PROVIDERS[entry["litellm_provider"]], *cells]


def main(path, version, date):
    rows = {}
    with open(path, encoding="utf-8") as file:
        prices = json.load(file)
    for name, entry in prices.items():
        wanted = entry.get("litellm_provider") in PROVIDERS and entry.get("mode") in MODES
        gone = str(entry.get("deprecation_date") or "9999") < f"{int(date[:4]) - 1}{date[4:]}"
        regional = re.match(r"^(azure/(us|eu|global|global-standard)/|bedrock/[^/]*/)", name)
        if not wanted or gone or regional or any(c.isspace() for c in name) or "-x-" in name:
            continue
        made = row(name, entry)
        if made:
            rows.setdefault(made[0], made)
    print(f"# Public prices of language models, {date}. Source: the price map inside the PyPI package litellm {version}")
    print("# (MIT); made by config/prices/build.py. US dollars per million tokens; `-`: no price of its own.")
    print("# model\tprovider\tinput\toutput\tcache_read\tcache_write\tcache_write_1h\treasoning"
          "\tabove tokens:input:output:cache_read:cache_write:cache_write_1h; tiers and what is no text: name:rates")
    for name in sorted(rows, key=lambda name: name.encode()):
        print("\t".join(rows[name]))


if __name__ == "__main__":
    main(*sys.argv[1:4])
