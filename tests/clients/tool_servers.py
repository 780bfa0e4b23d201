"""Asks public tool servers (MCP, over standard input and output) which tools they offer, and writes the definitions.

    python tool_servers.py OUT_FILE [WORK_FOLDER]

Each server comes from npm or PyPI, without its install scripts, and is asked `tools/list` and nothing else; keys that a server wants
before it starts are made up. One line per server: {"server", "version", "tools"}. A server that cannot be asked is named on standard
error; the exit code is 1 where fewer than 20 could be.
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


def npm(name, work):
    folder = work / name.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder, name], check=True, timeout=300)
    package = json.loads((folder / "node_modules" / name / "package.json").read_text())
    program = package["bin"] if isinstance(package["bin"], str) else next(iter(package["bin"].values()))
    return ["node", str(folder / "node_modules" / name / program)], folder


def pypi(name, work):
    folder = work / name
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin/pip", "install", "--quiet", name], check=True, timeout=300)
    return [str(folder / "bin" / name)], folder


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    work = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="tool-servers-")).resolve()
    found = 0
    with open(out, "w", encoding="utf-8") as sink:
        for install, names in ((npm, NPM), (pypi, PYPI)):
            for name, arguments in names.items():
                try:
                    command, folder = install(name, work)
                    version, tools = ask([*command, *arguments], folder)
                except (OSError, KeyError, StopIteration, queue.Empty, subprocess.SubprocessError) as error:
                    print(f"{name}: cannot be asked: {error!r}", file=sys.stderr)
                    continue
                sink.write(json.dumps({"server": name, "version": version, "tools": tools}) + "\n")
                found += bool(tools)
                print(f"{name} {version}: {len(tools)} tools", flush=True)
    print(f"{found} servers")
    return 0 if found >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
