"""Asks public tool servers (MCP, over standard input and output) which tools they offer, and writes the definitions.

    python tool_servers.py OUT_FILE [WORK_FOLDER]
    python tool_servers.py --before OUT_FILE [WORK_FOLDER]

Each server comes from npm or PyPI, without its install scripts, and is asked `tools/list` and nothing else; keys that a server wants
before it starts are made up. One line per server: {"server", "version", "tools"}. A server that cannot be asked is named on standard
error; the exit code is 1 where fewer than 20 could be. With `--before` some of them are asked in earlier versions and in today's, in the order in
which they were published: what honest definitions become over time.
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time

ENOUGH = 20
PATIENCE_S = 60
# What some of them want to see before they start.
KEYS = {
    name: "made-up-0123456789"
    for name in """GITHUB_PERSONAL_ACCESS_TOKEN GITLAB_PERSONAL_ACCESS_TOKEN SLACK_BOT_TOKEN SLACK_TEAM_ID GOOGLE_MAPS_API_KEY BRAVE_API_KEY
    TAVILY_API_KEY EXA_API_KEY FIRECRAWL_API_KEY STRIPE_SECRET_KEY SUPABASE_ACCESS_TOKEN NOTION_TOKEN ES_API_KEY HEROKU_API_KEY
    AIRTABLE_API_KEY LINEAR_API_KEY PERPLEXITY_API_KEY EVERART_API_KEY""".split()
} | {"ES_URL": "http://127.0.0.1:9", "COLLECTION_NAME": "things", "QDRANT_LOCAL_PATH": "qdrant"}
NPM = {
    "@modelcontextprotocol/server-filesystem": ["."],
    "@modelcontextprotocol/server-memory": [],
    "@modelcontextprotocol/server-sequential-thinking": [],
    "@modelcontextprotocol/server-everything": [],
    "@modelcontextprotocol/server-github": [],
    "@modelcontextprotocol/server-gitlab": [],
    "@modelcontextprotocol/server-slack": [],
    "@modelcontextprotocol/server-google-maps": [],
    "@modelcontextprotocol/server-brave-search": [],
    "@playwright/mcp": [],
    "chrome-devtools-mcp": [],
    "@upstash/context7-mcp": [],
    "@notionhq/notion-mcp-server": [],
    "tavily-mcp": [],
    "exa-mcp-server": [],
    "firecrawl-mcp": [],
    "mongodb-mcp-server": [],
    "@supabase/mcp-server-supabase": [],
    "@elastic/mcp-server-elasticsearch": [],
    "airtable-mcp-server": [],
    "@wonderwhy-er/desktop-commander": [],
    "mcp-server-kubernetes": [],
}
# Earlier versions, the oldest first; `latest` is today's.
BEFORE = {
    "@modelcontextprotocol/server-filesystem": ["0.5.1", "0.6.2", "2025.3.28", "2025.7.29", "2025.11.25", "2026.1.14", "latest"],
    "@modelcontextprotocol/server-memory": ["0.6.2", "2025.4.25", "2025.9.25", "2026.1.26", "latest"],
    "@modelcontextprotocol/server-everything": ["0.6.2", "2025.4.28", "2025.9.12", "2026.1.14", "latest"],
    "@modelcontextprotocol/server-github": ["0.5.0", "0.6.2", "latest"],
    "@modelcontextprotocol/server-sequential-thinking": ["0.6.2", "latest"],
    "@playwright/mcp": ["0.0.9", "0.0.25", "0.0.33", "0.0.49", "0.0.68", "latest"],
    "chrome-devtools-mcp": ["0.2.6", "0.8.0", "0.12.0", "0.16.0", "0.21.0", "1.5.0", "latest"],
    "tavily-mcp": ["0.1.4", "0.2.3", "0.2.9", "0.2.16", "latest"],
    "firecrawl-mcp": ["1.3.0", "1.12.0", "3.1.13", "3.15.0", "3.22.4", "latest"],
    "@upstash/context7-mcp": ["1.0.0", "1.0.16", "1.0.27", "2.1.4", "3.2.0", "latest"],
    "mongodb-mcp-server": ["0.1.3", "0.3.0", "1.0.2", "1.3.0", "1.12.0", "latest"],
    "exa-mcp-server": ["0.1.1", "2.1.1", "3.0.5", "3.1.8", "latest"],
    "@wonderwhy-er/desktop-commander": ["0.1.26", "0.2.10", "0.2.24", "0.2.39", "latest"],
    "mcp-server-kubernetes": ["2.9.6", "4.1.2", "latest"],
    "@notionhq/notion-mcp-server": ["1.8.0", "2.0.0", "2.2.1", "latest"],
    "@supabase/mcp-server-supabase": ["0.3.6", "0.4.3", "0.5.6", "0.8.3", "latest"],
    "airtable-mcp-server": ["1.4.1", "1.6.1", "1.8.0", "1.10.0", "latest"],
}
PYPI = {
    "mcp-server-git": [],
    "mcp-server-fetch": [],
    "mcp-server-time": ["--local-timezone", "UTC"],
    "mcp-server-sqlite": ["--db-path", "some.db"],
    "arxiv-mcp-server": [],
    "duckduckgo-mcp-server": [],
}


def ask(command, folder):
    """The tools and the version of a server."""
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, **KEYS, "HOME": str(folder)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()

    def call(number, method, params):
        said = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": number} if number else {})
        process.stdin.write(json.dumps(said) + "\n")
        process.stdin.flush()
        end = time.monotonic() + PATIENCE_S
        while number:
            try:
                said = json.loads(lines.get(timeout=max(0.1, end - time.monotonic())))
            except json.JSONDecodeError:
                continue
            if said.get("id") == number and "method" not in said:
                return said["result"]

    try:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "weir", "version": "1"}}
        version = call(1, "initialize", hello)["serverInfo"].get("version", "")
        call(None, "notifications/initialized", {})
        tools, cursor = [], None
        while True:
            page = call(2 + len(tools), "tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return version, tools
    finally:
        process.kill()
        process.wait()


def npm(name, work, version="latest"):
    folder = work / f"{name.replace('/', '_')}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"{name}@{version}"
    subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, wanted], check=True, timeout=300)
    package = json.loads((folder / "node_modules" / name / "package.json").read_text())
    program = package["bin"] if isinstance(package["bin"], str) else next(iter(package["bin"].values()))
    return ["node", str(folder / "node_modules" / name / program)], folder


def pypi(name, work):
    folder = work / name
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", name], check=True, timeout=300)
    return [str(folder / "bin" / name)], folder


def wanted(before):
    """What is asked: a function that installs it, its name, and what else that function and its program take."""
    if before:
        yield from ((npm, name, [version], NPM[name]) for name, versions in BEFORE.items() for version in versions)
    else:
        yield from ((npm, name, [], arguments) for name, arguments in NPM.items())
        yield from ((pypi, name, [], arguments) for name, arguments in PYPI.items())


def main():
    before = "--before" in sys.argv
    places = [place for place in sys.argv[1:] if place != "--before"]
    out = pathlib.Path(places[0]).resolve()
    work = pathlib.Path(places[1] if len(places) > 1 else tempfile.mkdtemp(prefix="tool-servers-")).resolve()
    found = 0
    with open(out, "w", encoding="utf-8") as sink:
        for install, name, of, arguments in wanted(before):
            try:
                command, folder = install(name, work, *of)
                version, tools = ask([*command, *arguments], folder)
            except (OSError, KeyError, StopIteration, queue.Empty, subprocess.SubprocessError) as error:
                print(f"{name} {of}: cannot be asked: {error!r}", file=sys.stderr)
                continue
            sink.write(json.dumps({"server": name, "version": of[0] if of else version, "tools": tools}) + "\n")
            found += bool(tools)
            print(f"{name} {version}: {len(tools)} tools", flush=True)
    print(f"{found} servers")
    return 0 if found >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
