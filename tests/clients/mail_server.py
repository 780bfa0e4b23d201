"""A mail server of the `aiosmtpd` library over TLS: `serve CERTIFICATE KEY`. Takes mail only from who logs in as weir, refuses the
receiver nobody@example.org, and prints its port and then each mail as a line of JSON."""

import asyncio
import json
import ssl
import sys
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address == "nobody@example.org":
            return "550 no such mailbox"
        if address == "later@example.org":
            return "451 not now"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.content, policy=policy.default)
        print(
            json.dumps(
                {
                    "tls": session.ssl is not None or server.transport.get_extra_info("ssl_object") is not None,
                    "from": envelope.mail_from,
                    "to": envelope.rcpt_tos,
                    "names": sorted(mail.keys()),
                    "subject": mail["Subject"],
                    "text": mail.get_content(),
                }
            ),
            flush=True,
        )
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    fits = data.login == b"weir" and data.password == b"canary-p@ss:word"
    return AuthResult(success=fits, handled=fits)


async def serve(certificate, key):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    def session():
        return SMTP(Handler(), authenticator=authenticate, auth_required=True, auth_require_tls=False)

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(serve(*sys.argv[1:]))
