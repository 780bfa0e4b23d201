"""The official MCP client, directly against a server of tools and through Weir: what it makes of the answers has to be equal.

Run by the Rust suite, which starts both ends and names them in PROVIDER_URL and WEIR_URL.
"""

import asyncio
import os
import unittest

from mcp import Client


async def session(url):
    """Everything a client asks, as the SDK shows it."""
    async with Client(url + "/mcp") as client:
        tools = await client.list_tools()
        added = await client.call_tool("add", {"a": 2, "b": 3})
        fetched = await client.call_tool("fetch", {"url": "https://example.com"})
        resource = await client.read_resource("text://foxes")
        prompt = await client.get_prompt("about", {"animal": "foxes"})
        shown = [tools, added, fetched, resource, prompt]
        return [one.model_dump(exclude={"meta"}) for one in shown]


class Mcp(unittest.TestCase):
    maxDiff = None

    def test_the_same_through_the_gateway(self):
        direct, through = (asyncio.run(session(os.environ[name])) for name in ("PROVIDER_URL", "WEIR_URL"))
        self.assertEqual(direct, through)
        self.assertIn("Ignore all previous", str(through[2]))


if __name__ == "__main__":
    unittest.main()
