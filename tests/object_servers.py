"""Servers that give files by address, for tests: a web server that reads ranges, the part of S3 that readers
need, and a proxy that delays answers and breaks them. Each has a thread with an event loop in the test's
process, and a free port, until its block ends.

    with WebServer({"a": b"..."}) as web:       # web.url + "/a"
    with S3Server({"bucket": {"key": b"..."}}) as s3:
    with FaultProxy(web.port, faults=0.1) as proxy:
"""

import asyncio
import email.utils
import functools
import hashlib
import html
import json
import random
import socket
import struct
import threading
import urllib.parse

RESET, TRUNCATE, SLOW = "reset", "truncate", "slow"
FAULTS = (500, 503, RESET, TRUNCATE, SLOW)
REASONS = {200: "OK", 206: "Partial Content"}


@functools.lru_cache
def etag_of(content):
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class Request:
    def __init__(self, head):
        line, *lines = head.decode("latin-1").rstrip().split("\r\n")
        self.method, path, _ = line.split(" ")
        absolute = path.startswith("http://")  # as clients ask a proxy
        self.path = "/" + path.split("/", 3)[3] if absolute else path
        self.headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in lines)}


def answer(status, content=b"", **headers):
    """An answer: status, headers, content. Underscores in the names of headers stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Length": len(content), **named}, content


def part_of(content, request, etag=True, ranges=True, **headers):
    """The answer with an object, or the range of it that the request asks for."""
    mark = etag_of(content)
    if etag:
        headers["ETag"] = mark
        if request.headers.get("if-match", mark) != mark:
            return answer(412, **headers)
    asked = request.headers.get("range")
    if not asked or not ranges or request.method == "HEAD":
        return answer(200, content, **headers)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    first, last = int(first), min(int(last or len(content) - 1), len(content) - 1)
    if first > last:
        return answer(416, Content_Range=f"bytes */{len(content)}", **headers)
    return answer(
        206, content[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(content)}", **headers
    )


class Server:
    """A server whose `respond` gives the answer to a request."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests = []  # each Request so far

    def ranges(self):
        """(first, last) of each range that was requested."""
        asked = [r.headers.get("range") for r in list(self.requests) if r.method == "GET"]
        return [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked if text]

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.socket.close()

    def run(self):
        self.loop.run_until_complete(asyncio.start_server(self.serve, sock=self.socket))
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    async def serve(self, reader, writer):
        try:
            while True:
                request = Request(await reader.readuntil(b"\r\n\r\n"))
                self.requests.append(request)
                status, headers, content = await self.respond(request)
                head = f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}\r\n"
                head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                body = b"" if request.method == "HEAD" else content
                await self.send(writer, head.encode("latin-1") + b"\r\n", body)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def send(self, writer, head, content):
        writer.write(head + content)
        await writer.drain()


class WebServer(Server):
    """Gives files: path (without the first slash) -> bytes. `refuse` has statuses, and `redirects` addresses,
    for some of them."""

    def __init__(self, files, ranges=True, etag=True, head=True):
        self.files, self.with_ranges, self.with_etag, self.with_head = files, ranges, etag, head
        self.refuse, self.redirects = {}, {}
        self.modified = email.utils.formatdate(1_700_000_000, usegmt=True)
        super().__init__()

    async def respond(self, request):
        path = urllib.parse.unquote(request.path.partition("?")[0][1:])
        if path in self.refuse or (request.method == "HEAD" and not self.with_head):
            return answer(self.refuse.get(path, 403))
        if path in self.redirects:
            return answer(302, Location=self.redirects[path])
        if path not in self.files:
            return answer(404, b"nothing here")
        content = self.files[path]
        return part_of(content, request, self.with_etag, self.with_ranges, Last_Modified=self.modified)


class S3Server(Server):
    """The part of S3 that readers need: HEAD, GET with ranges, ListObjectsV2 in pages of `page` keys. Checks
    signatures with botocore, an independent implementation, if `keys` (key -> secret) are given."""

    def __init__(self, buckets, keys=None, token=None, page=1000, region="us-east-1"):
        self.buckets, self.keys, self.token, self.page, self.region = buckets, keys, token, page, region
        super().__init__()

    def fail(self, status, code, **headers):
        xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>about {code}</Message></Error>"
        return answer(status, xml.encode(), **headers)

    def signature_fault(self, request):
        """The code of what is wrong with the signature; None: it is right."""
        import botocore.auth  # noqa: PLC0415 - only the complete run has it
        import botocore.awsrequest  # noqa: PLC0415
        import botocore.credentials  # noqa: PLC0415

        given = request.headers.get("authorization", "")
        if not given:
            return "AccessDenied"
        key = given.partition("Credential=")[2].partition("/")[0]
        region = given.split("/")[2]
        if key not in self.keys:
            return "InvalidAccessKeyId"
        token = request.headers.get("x-amz-security-token")
        if token != self.token:
            return "InvalidToken"
        if region != self.region:
            return "AuthorizationHeaderMalformed"
        url = f"http://{request.headers['host']}{request.path}"
        signed = botocore.awsrequest.AWSRequest(method=request.method, url=url)
        signed.context["timestamp"] = request.headers["x-amz-date"]
        signed.context["payload_signing_enabled"] = False
        for name in ("X-Amz-Date", "X-Amz-Content-SHA256", "X-Amz-Security-Token"):
            if name.lower() in request.headers:
                signed.headers[name] = request.headers[name.lower()]
        credentials = botocore.credentials.Credentials(key, self.keys[key], token)
        signer = botocore.auth.S3SigV4Auth(credentials, "s3", region)
        text = signer.string_to_sign(signed, signer.canonical_request(signed))
        right = given.endswith(f"Signature={signer.signature(text, signed)}")
        return None if right else "SignatureDoesNotMatch"

    async def respond(self, request):
        if self.keys is not None and (code := self.signature_fault(request)):
            if code == "AuthorizationHeaderMalformed":
                return self.fail(400, code, x_amz_bucket_region=self.region)
            return self.fail(403, code)
        path, _, query = request.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path[1:]).partition("/")
        if bucket not in self.buckets:
            return self.fail(404, "NoSuchBucket")
        objects = self.buckets[bucket]
        if not key:
            return self.listing(objects, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
        return part_of(objects[key], request) if key in objects else self.fail(404, "NoSuchKey")

    def listing(self, objects, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("continuation-token", "")
        entries = {}  # key or common prefix -> content
        for key in sorted(objects):
            if not key.startswith(prefix):
                continue
            deeper = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            entries[prefix + deeper[0] + "/" if deeper[1] else key] = None if deeper[1] else objects[key]
        names = [name for name in entries if name > after]
        page, more = names[: self.page], len(names) > self.page
        parts = []
        for name in page:
            text = html.escape(name)
            if (content := entries[name]) is None:
                parts.append(f"<CommonPrefixes><Prefix>{text}</Prefix></CommonPrefixes>")
            else:
                etag = etag_of(content).replace('"', "&quot;")
                parts.append(
                    f"<Contents><Key>{text}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>{etag}</ETag><Size>{len(content)}</Size></Contents>"
                )
        token = f"<NextContinuationToken>{html.escape(page[-1])}</NextContinuationToken>" if more else ""
        xml = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(parts)}</ListBucketResult>"
        )
        return answer(200, xml.encode())


class FaultProxy(Server):
    """Passes requests on to a port of this machine. Each takes `delay_s` longer; a share `faults` fails,
    as drawn from `kinds`, but at most twice for the same range."""

    def __init__(self, port, faults=0.0, delay_s=0.0, seed=1, kinds=FAULTS):
        self.target, self.faults, self.delay_s, self.kinds = port, faults, delay_s, kinds
        self.draw = random.Random(seed)
        self.failed = {}  # (path, range) -> failures so far
        self.n_faults = 0
        super().__init__()

    def fault(self, request):
        what = request.path, request.headers.get("range")
        if self.failed.get(what, 0) >= 2 or self.draw.random() >= self.faults:
            return None
        self.failed[what] = self.failed.get(what, 0) + 1
        self.n_faults += 1
        return self.draw.choice(self.kinds)

    async def serve(self, near_reader, near):
        far = None
        try:
            while True:
                head = await near_reader.readuntil(b"\r\n\r\n")
                request = Request(head)
                self.requests.append(request)
                fault = self.fault(request)
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if fault == RESET:
                    linger = struct.pack("ii", 1, 0)
                    near.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    break
                if isinstance(fault, int):
                    near.write(f"HTTP/1.1 {fault} Other\r\nContent-Length: 0\r\n\r\n".encode())
                    continue
                if far is None:
                    far_reader, far = await asyncio.open_connection("127.0.0.1", self.target)
                far.write(head)
                answered, content = await self.fetch(far_reader, request.method)
                if fault == TRUNCATE and content:
                    near.write(answered + content[: len(content) // 2])
                    break
                if fault == SLOW:
                    step = len(content) // 3 + 1
                    near.write(answered)
                    for at in range(0, len(content), step):
                        near.write(content[at : at + step])
                        await asyncio.sleep(0.001)
                else:
                    near.write(answered + content)
                await near.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        near.close()
        if far is not None:
            far.close()

    async def fetch(self, reader, method):
        """The head and the content of the target's answer."""
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
        size = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
        return head, b"" if method == "HEAD" else await reader.readexactly(size)


class HubServer(Server):
    """The part of the Hugging Face hub that readers of data sets need. files: "OWNER/NAME" -> revision ->
    path -> content. Large files (of `large` bytes or more) lead to another server, `cdn`, whose files have
    other ETags. Listings have pages of `page` files."""

    def __init__(self, files, cdn=None, large=1000, page=1000, token=None):
        self.files, self.cdn, self.large, self.page, self.token = files, cdn, large, page, token
        super().__init__()

    def fail(self, status, code):
        return answer(status, b'{"error": "about %s"}' % code.encode(), X_Error_Code=code)

    def oid(self, content):
        return hashlib.sha256(content).hexdigest()

    async def respond(self, request):
        path, _, query = request.path.partition("?")
        parts = [urllib.parse.unquote(part) for part in path.split("/")[1:]]
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return self.fail(401, "RepoNotFound")
        listing = parts[0] == "api"
        kind, owner, name, _, revision, *rest = parts[listing:]
        if kind != "datasets" or f"{owner}/{name}" not in self.files:
            return self.fail(404, "RepoNotFound")
        revisions = self.files[f"{owner}/{name}"]
        if revision not in revisions:
            return self.fail(404, "RevisionNotFound")
        files, below = revisions[revision], "/".join(rest)
        if listing:
            return self.listing(files, below, path, dict(urllib.parse.parse_qsl(query)))
        if below not in files:
            return self.fail(404, "EntryNotFound")
        content = files[below]
        if len(content) < self.large or not self.cdn:
            status, headers, body = part_of(content, request)
            return status, headers | {"ETag": f'"{self.oid(content)}"'}, body
        self.cdn.files[f"{name}/{below}"] = content
        to = f"http://localhost:{self.cdn.port}/{name}/{urllib.parse.quote(below)}"
        return answer(302, Location=to, X_Linked_ETag=f'"{self.oid(content)}"', X_Linked_Size=len(content))

    def listing(self, files, directory, path, query):
        names = [name for name in sorted(files) if name.startswith(directory + "/" if directory else "")]
        if not names:
            return self.fail(404, "EntryNotFound")
        deeper = len(directory) + 1 if directory else 0
        entries = {}
        for name in names:
            first, slash, _ = name[deeper:].partition("/")
            if slash:
                where = name[:deeper] + first
                entries[where] = {"type": "directory", "oid": "0", "size": 0, "path": where}
            if slash and query["recursive"] != "true":
                continue
            content = files[name]
            entries[name] = {"type": "file", "oid": self.oid(content), "size": len(content), "path": name}
            if len(content) >= self.large and self.cdn:
                entries[name] |= {"oid": "1" * 40, "lfs": {"oid": self.oid(content), "size": len(content)}}
        names, begin = list(entries), int(query.get("cursor", 0))
        page = [entries[name] for name in names[begin : begin + self.page]]
        headers = {}
        if begin + self.page < len(names):
            more = f"{path}?recursive={query['recursive']}&cursor={begin + self.page}"
            headers["Link"] = f'<https://another.example{more}>; rel="next"'
        return answer(200, json.dumps(page).encode(), **headers)
