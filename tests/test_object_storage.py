"""Files of web servers and of object storage, black box: the same batches as of local files, whatever the
server does, and errors that say what to do."""

import gzip
import hashlib
import json
import random

import pytest
from command import BATCH, SHUFFLE, cachew, failed, run, write
from make_data import record
from object_servers import RESET, SLOW, TRUNCATE, FaultProxy, S3Server, WebServer
from test_sources import shard

pytestmark = pytest.mark.usefixtures("own_index_dir", "no_credentials")
KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}


@pytest.fixture
def no_credentials(monkeypatch, tmp_path):
    """Nothing of this machine's settings, and no proxy."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_NO_SIGN_REQUEST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CACHEW_STORAGE_S", "600")


def of_server(server, key=None):
    """The environment of a command that reads s3:// from a server."""
    env = {"AWS_ENDPOINT_URL": server.url}
    if key:
        env |= {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": KEYS.get(key, "wrong")}
    return env


def payloads(n, seed=0, most=3000):
    """Bytes of varying size, which no compression makes much smaller."""
    draw = random.Random(seed)
    return [draw.randbytes(draw.randrange(most)) for _ in range(n)]


def shards(tmp_path, form="tfrecord"):
    """Three files of 60 records each: name -> content. They lie in tmp_path/data too."""
    (tmp_path / "data").mkdir()
    files = {}
    for i in range(3):
        path = tmp_path / "data" / f"part-{i}.{form}"
        if form == "tar":
            shard(path, range(60 * i, 60 * i + 60))
        elif form == "text":
            path.write_bytes(b"".join(p.hex().encode() + b"\n" for p in payloads(60, i, 1000)))
        else:
            data = b"".join(record(p) for p in payloads(60, i))
            path.write_bytes(gzip.compress(data, 1) if form == "gzip" else data)
        files[path.name] = path.read_bytes()
    return files


SOURCES = {
    "tfrecord": {"op": "tfrecord"},
    "gzip": {"op": "tfrecord"},
    "text": {"op": "text"},
    "tar": {"op": "tar", "components": {"bin": "bytes", "cls": "int64"}},
}


def pipeline(tmp_path, files, *ops, source="tfrecord"):
    return write(tmp_path / "p.json", [{**SOURCES[source], "files": files}, *ops, BATCH])


def local_digest(tmp_path, *ops, source="tfrecord"):
    made = pipeline(tmp_path, str(tmp_path / "data" / "part-*"), *ops, source=source)
    return run(made, "--digest", "--seed", 7)["digest"]


# ---- the same batches ----


@pytest.mark.parametrize("source", SOURCES)
def test_files_of_a_web_server_give_the_batches_of_local_files(tmp_path, source):
    files = shards(tmp_path, source)
    with WebServer(files) as web:
        made = pipeline(tmp_path, [f"{web.url}/{name}" for name in files], SHUFFLE, source=source)
        assert run(made, "--digest", "--seed", 7)["digest"] == local_digest(tmp_path, SHUFFLE, source=source)


@pytest.mark.parametrize("source", ["tfrecord", "text", "tar"])
def test_no_byte_is_requested_twice(tmp_path, source):
    """In the order of the files, records that lie next to each other are read together: once for the index,
    once for the batches."""
    files = shards(tmp_path, source)
    with WebServer(files) as web:
        made = pipeline(tmp_path, f"{web.url}/part-{{0,1,2}}.{source}", source=source)
        elements = run(made, "--digest")["elements"]
        first = web.ranges()
        del web.requests[:]
        assert run(made, "--digest")["elements"] == elements == 180
        again = web.ranges()
    size = sum(map(len, files.values()))
    assert sum(last - first + 1 for first, last in again) <= size
    assert sum(last - first + 1 for first, last in first) <= 2 * size + 3 * 64


@pytest.mark.parametrize(
    "pattern", ["a/part-*.tfrecord", "a/part-{0..2}.tfrecord", "**/part-?.tfrecord", "a/[p]*d"]
)
def test_a_pattern_lists_the_bucket_in_pages(tmp_path, pattern):
    files = shards(tmp_path)
    others = {"a/part-0.txt": b"x", "a/dir/": b"", "z": b""}
    bucket = {**{f"a/{name}": content for name, content in files.items()}, **others}
    with S3Server({"bucket": bucket}, page=2) as s3:
        made = pipeline(tmp_path, f"s3://bucket/{pattern}", SHUFFLE)
        ran = run(made, "--digest", "--seed", 7, env=of_server(s3))
        assert ran["digest"] == local_digest(tmp_path, SHUFFLE)


def test_wildcards_mean_what_they_mean_for_local_files(tmp_path):
    keys = ["a", "a.x", "b/a.x", "b/.a.x", "b/c/a.x", "b/c/d/a.x", "b/.h/a.x", "bc/a.x"]
    keys += ["b/a b+ü&<'.x", "b/[1].x"]
    patterns = ["*", "*.x", "b/*", "b/**", "**/a.x", "b/**/a.x", "*/a.x", "b/*/*.x", "b?/*", "b/a*ü*"]
    patterns += [r"b/\[1\].x", "b/[[]*", "**", "b/{c,c/d}/*.x"]
    root = tmp_path / "root"
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(key.encode())
    with S3Server({"bucket": {key: key.encode() for key in keys}}, page=3) as s3:
        for pattern in patterns:
            here = cachew("ls", "--json", f"{root}/{pattern}").json["files"]
            there = cachew("ls", "--json", f"s3://bucket/{pattern}", env=of_server(s3)).json["files"]
            names = [(f["name"].removeprefix(f"{root}/"), f["size"]) for f in here]
            assert names == [(f["name"].removeprefix("s3://bucket/"), f["size"]) for f in there], pattern
            assert names


@pytest.mark.parametrize("draws", [1, 2, 3])
def test_requests_that_fail_are_repeated(tmp_path, draws):
    """Every tenth fails: by a status, a reset, an end in the middle, or slowly."""
    files = shards(tmp_path)
    with WebServer(files) as web, FaultProxy(web.port, faults=0.1, seed=draws) as proxy:
        made = pipeline(tmp_path, f"{proxy.url}/part-{{0,1,2}}.tfrecord", SHUFFLE)
        assert run(made, "--digest", "--seed", 7)["digest"] == local_digest(tmp_path, SHUFFLE)
        assert proxy.n_faults > 0


@pytest.mark.parametrize("kind", [500, 502, 503, 504, 408, 429, RESET, TRUNCATE, SLOW])
def test_every_kind_of_failure_may_pass(tmp_path, kind):
    files = shards(tmp_path, "gzip")
    with WebServer(files) as web, FaultProxy(web.port, faults=0.5, kinds=[kind]) as proxy:
        made = pipeline(tmp_path, f"{proxy.url}/part-{{0,1,2}}.gzip", source="gzip")
        assert run(made, "--digest", "--seed", 7)["digest"] == local_digest(tmp_path, source="gzip")
        assert proxy.n_faults > 0


def test_a_truncated_answer_is_continued_where_it_ended(tmp_path):
    data = b"".join(record(p) for p in payloads(100))
    with WebServer({"a": data}) as web, FaultProxy(web.port, faults=0.5, kinds=[TRUNCATE]) as proxy:
        run(pipeline(tmp_path, f"{web.url}/a"))  # makes the index
        run(pipeline(tmp_path, f"{proxy.url}/a"))
        ranges = proxy.ranges()
    ends = {}  # by the last byte: where the requests for it began
    for first, last in ranges:
        ends.setdefault(last, []).append(first)
    for firsts in ends.values():
        assert firsts == sorted(firsts)
    assert any(len(firsts) > 1 for firsts in ends.values())


def test_with_a_delay_for_each_request_nothing_changes(tmp_path):
    files = shards(tmp_path)
    with WebServer(files) as web, FaultProxy(web.port, delay_s=0.02) as proxy:
        made = pipeline(tmp_path, f"{proxy.url}/part-{{0,1,2}}.tfrecord", SHUFFLE)
        assert run(made, "--digest", "--seed", 7)["digest"] == local_digest(tmp_path, SHUFFLE)


def test_a_run_resumes_from_a_state(tmp_path):
    files = shards(tmp_path)
    whole = local_digest(tmp_path, SHUFFLE)
    with WebServer(files) as web:
        made = pipeline(tmp_path, f"{web.url}/part-{{0,1,2}}.tfrecord", SHUFFLE)
        words = ["--digest", "--seed", 7, "--state", tmp_path / "state"]
        parts = [run(made, *words, "--batches", 9), run(made, *words)]
    assert sum(int(part["digest"], 16) for part in parts) % (1 << 128) == int(whole, 16)


def test_whole_files_are_records(tmp_path):
    """Their keys are made of the versions, so nothing is read to index them."""
    pictures = {f"p/{i}": p for i, p in enumerate(payloads(20))}
    with S3Server({"bucket": pictures}) as s3:
        made = write(tmp_path / "p.json", [{"op": "files", "files": "s3://bucket/p/*"}, BATCH])
        ran = run(made, "--digest", env=of_server(s3))
        assert ran["elements"] == 20
        assert len(s3.ranges()) == sum(1 for p in pictures.values() if p)
        assert run(made, "--digest", env=of_server(s3))["digest"] == ran["digest"]


def test_a_cache_is_used_in_the_next_run(tmp_path):
    files = shards(tmp_path)
    with WebServer(files) as web:
        made = pipeline(tmp_path, f"{web.url}/part-{{0,1,2}}.tfrecord", {"op": "autocache"}, SHUFFLE)
        words = ["--digest", "--seed", 7, "--cache-dir", tmp_path / "cache", "--cache", 0]
        digests = {run(made, *words)["digest"] for _ in range(2)}
    assert digests == {local_digest(tmp_path, SHUFFLE)}


# ---- indexes, and files that change ----


def test_an_index_is_kept_until_the_file_changes(tmp_path):
    data = b"".join(record(p) for p in payloads(30))
    with WebServer({"a": data}) as web:
        words = ["index", f"{web.url}/a", "--json"]
        assert [cachew(*words).json["indexed"] for _ in range(2)] == [1, 0]
        web.files["a"] = b"".join(record(p) for p in payloads(30, seed=1))
        ran = cachew(*words).json
        assert (ran["indexed"], ran["records"]) == (1, 30)


class ChangingServer(WebServer):
    """Gives other files once `after` ranges were requested."""

    def __init__(self, files, later, **options):
        super().__init__(files, **options)
        self.later, self.after = later, 1000

    async def respond(self, request):
        if len(self.ranges()) >= self.after:
            self.files = self.later
            self.modified = "Sun, 06 Nov 2033 08:49:37 GMT"
        return await super().respond(request)


@pytest.mark.parametrize("etag", [True, False])
@pytest.mark.parametrize("what", ["content", "longer", "shorter", "deleted"])
def test_a_file_that_changes_under_a_run_is_an_error(tmp_path, what, etag):
    data = b"".join(record(p) for p in payloads(30))
    later = {"content": data[::-1], "longer": data + b"x", "shorter": data[:100], "deleted": None}[what]
    files = {"a": data}
    with ChangingServer(files, {} if later is None else {"a": later}, etag=etag) as web:
        assert cachew("index", f"{web.url}/a").code == 0
        web.after = len(web.ranges()) + 1
        error = failed(pipeline(tmp_path, f"{web.url}/a", SHUFFLE), 1)
    assert error["file"] == f"{web.url}/a" and error["kind"] == "data"
    message = "was deleted since it was indexed" if what == "deleted" else "changed since it was indexed"
    assert message in error["message"]


def test_ranges_name_the_version(tmp_path):
    data = b"".join(record(p) for p in payloads(30))
    with WebServer({"a": data}) as web:
        run(pipeline(tmp_path, f"{web.url}/a", SHUFFLE), "--threads", 1, "--epochs", 3)
        named = [r.headers["if-match"] for r in web.requests if "if-match" in r.headers]
    assert named and set(named) == {f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'}


# ---- what can go wrong ----


def refusal(tmp_path, address, code=1, **env):
    error = failed(pipeline(tmp_path, address), code, env={"CACHEW_STORAGE_S": "1", **env})
    assert error["operator"] == "tfrecord"
    return error["message"]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("InvalidAccessKeyId", "the server does not know this access key"),
        ("SignatureDoesNotMatch", "the secret does not belong to the access key"),
        ("ExpiredToken", "the session of these credentials has ended"),
        ("RequestTimeTooSkewed", "set the clock"),
        ("AccessDenied", "these credentials may not read it"),
        ("SomethingNew", "about SomethingNew"),
    ],
)
def test_what_the_storage_refuses_says_what_to_do(tmp_path, code, advice):
    with S3Server({"bucket": {"a": b""}}) as s3:

        async def respond(_request):
            return s3.fail(403, code)

        s3.respond = respond
        for address in ("s3://bucket/a", "s3://bucket/*"):
            message = refusal(tmp_path, address, **of_server(s3, "AKIDEXAMPLE"))
            assert f"HTTP status 403 {code}: " in message and advice in message and s3.url in message
            assert "AWS_ACCESS_KEY_ID" in message


def test_names_that_the_storage_does_not_have(tmp_path):
    with S3Server({"bucket": {"a": b""}}) as s3:
        env = of_server(s3)
        assert "no such bucket" in refusal(tmp_path, "s3://other/a", **env)
        assert "no such bucket" in refusal(tmp_path, "s3://other/*", **env)
        assert refusal(tmp_path, "s3://bucket/b", 2, **env) == "no file matches s3://bucket/b"
        assert refusal(tmp_path, "s3://bucket/b*", 2, **env) == "no file matches s3://bucket/b*"
        for address in ("s3://bucket", "s3://bucket/"):
            assert "names no file: expected the address of a file" in refusal(tmp_path, address, 2, **env)
        assert "expected the name of a bucket" in refusal(tmp_path, "s3:///a", 2, **env)


def test_what_a_web_server_refuses(tmp_path):
    data = b"".join(record(p) for p in payloads(300))
    with WebServer({"a": data}, ranges=False) as web:
        assert "does not send parts of files" in refusal(tmp_path, f"{web.url}/a")
        web.refuse["b"] = 401
        assert "HTTP status 401: the server denies access" in refusal(tmp_path, f"{web.url}/b")
        web.refuse["b"] = 503
        assert "HTTP status 503: the server failed each time" in refusal(tmp_path, f"{web.url}/b")
        assert refusal(tmp_path, f"{web.url}/c", 2) == f"no file matches {web.url}/c"
        assert "a web server does not list its files" in refusal(tmp_path, f"{web.url}/*", 2)
        gone = f"{web.url}/a"
    assert "no answer after" in refusal(tmp_path, gone)


def test_settings_that_are_wrong(tmp_path):
    address = "s3://bucket/a"
    assert "expected a URL" in refusal(tmp_path, address, 2, AWS_ENDPOINT_URL="localhost:9000")
    assert "AWS_SECRET_ACCESS_KEY" in refusal(tmp_path, address, 2, AWS_ACCESS_KEY_ID="AK")
    assert 'AWS_PROFILE is "nobody"' in refusal(tmp_path, address, 2, AWS_PROFILE="nobody")
    ran = failed(pipeline(tmp_path, "ftp://host/a"), 2)
    assert "s3://, gs://, hf://, http:// or https://" in ran["expected"]


def test_head_may_be_refused_and_addresses_redirected(tmp_path):
    """As the addresses that sign themselves do, and the file servers of large sites."""
    files = shards(tmp_path)
    with WebServer(files, head=False) as web:
        web.redirects = {f"r/{name}": f"{web.url}/{name}?signed=1" for name in files}
        made = pipeline(tmp_path, f"{web.url}/r/part-{{0,1,2}}.tfrecord", SHUFFLE)
        assert run(made, "--digest", "--seed", 7)["digest"] == local_digest(tmp_path, SHUFFLE)


def test_a_proxy_of_the_environment_is_used(tmp_path):
    files = shards(tmp_path)
    with WebServer(files) as web:
        made = pipeline(tmp_path, "http://files.invalid/part-{0,1,2}.tfrecord", SHUFFLE)
        env = {"http_proxy": web.url, "no_proxy": ""}
        assert run(made, "--digest", "--seed", 7, env=env)["digest"] == local_digest(tmp_path, SHUFFLE)


# ---- credentials ----


def signed_run(tmp_path, s3, **env):
    made = pipeline(tmp_path, "s3://bucket/a+ü b/part-*.tfrecord", SHUFFLE)
    env = {"AWS_ENDPOINT_URL": s3.url, **env}
    assert run(made, "--digest", "--seed", 7, env=env)["digest"] == local_digest(tmp_path, SHUFFLE)


@pytest.fixture
def signing_server(tmp_path):
    """It checks signatures by botocore."""
    pytest.importorskip("botocore")
    bucket = {f"a+ü b/{name}": content for name, content in shards(tmp_path).items()}
    with S3Server({"bucket": bucket}, keys=KEYS, page=1) as s3:
        yield s3


@pytest.mark.large
def test_requests_are_signed(tmp_path, signing_server):
    key = "AKIDEXAMPLE"
    s3, env = signing_server, {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": KEYS[key]}
    signed_run(tmp_path, s3, **env)
    s3.token = "session/+="
    signed_run(tmp_path, s3, **env, AWS_SESSION_TOKEN="session/+=")
    s3.region = "eu-west-1"
    signed_run(tmp_path, s3, **env, AWS_SESSION_TOKEN="session/+=", AWS_REGION="eu-west-1")
    signed_run(tmp_path, s3, **env, AWS_SESSION_TOKEN="session/+=")  # learns the region from the server
    with pytest.raises(AssertionError, match="AccessDenied"):
        signed_run(tmp_path, s3)


@pytest.mark.large
def test_a_profile_has_the_credentials(tmp_path, signing_server):
    key = "AKIDEXAMPLE"
    aws = tmp_path / ".aws"
    aws.mkdir()
    (aws / "credentials").write_text(
        f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n\n"
        f"[train]\n# a comment\naws_access_key_id={key}\naws_secret_access_key = {KEYS[key]}\n"
    )
    (aws / "config").write_text(
        f"[profile train]\nregion = eu-west-1\ns3 =\n  endpoint_url = {signing_server.url}/\n"
    )
    signing_server.region = "eu-west-1"
    signed_run(tmp_path, signing_server, AWS_PROFILE="train")
    signed_run(tmp_path, signing_server, AWS_PROFILE="train", AWS_ENDPOINT_URL="")
    made = pipeline(tmp_path, "s3://bucket/a+ü b/part-*.tfrecord", SHUFFLE)
    error = failed(made, 1, env={"AWS_ENDPOINT_URL": signing_server.url})
    assert "the profile default in" in error["message"]


def test_requests_may_be_anonymous(tmp_path):
    with S3Server({"bucket": {"a": record(b"a")}}) as s3:
        run(pipeline(tmp_path, "s3://bucket/a"), env={**of_server(s3, "no"), "AWS_NO_SIGN_REQUEST": "true"})
        run(pipeline(tmp_path, "gs://bucket/a"), env=of_server(s3))
        assert not any("authorization" in r.headers for r in s3.requests)


@pytest.mark.large
def test_an_independent_server_gives_the_same(tmp_path):
    """moto, with data that boto3 puts there."""
    moto_server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    files = shards(tmp_path)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        keys = {"aws_access_key_id": "AK", "aws_secret_access_key": "SK", "region_name": "us-east-1"}
        s3 = boto3.client("s3", endpoint_url=url, **keys)
        s3.create_bucket(Bucket="bucket")
        for name, content in files.items():
            s3.put_object(Bucket="bucket", Key=f"train/{name}", Body=content)
        for i in range(5):
            s3.put_object(Bucket="bucket", Key=f"many/{i}", Body=b"x")
        env = {"AWS_ENDPOINT_URL_S3": url, "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}
        for scheme in ("s3", "gs"):
            made = pipeline(tmp_path, f"{scheme}://bucket/train/*", SHUFFLE)
            assert run(made, "--digest", "--seed", 7, env=env)["digest"] == local_digest(tmp_path, SHUFFLE)
        listed = cachew("ls", "--json", "s3://bucket/many/", env=env).json["files"]
        assert [f["name"] for f in listed] == [f"s3://bucket/many/{i}" for i in range(5)]
        assert "NoSuchBucket" in refusal(tmp_path, "s3://other/*", **env)
    finally:
        server.stop()


# ---- the service ----


def test_workers_read_what_their_roots_allow(tmp_path, daemons):
    files = shards(tmp_path)
    with S3Server({"bucket": {f"a/{name}": content for name, content in files.items()}}) as s3:
        env = of_server(s3)
        words = ["--workers", 1, "--listen", "127.0.0.1:0", "--data-root", "s3://bucket/a/"]
        up = daemons.start("up", *words, env=env)
        made = pipeline(tmp_path, "s3://bucket/a/*", SHUFFLE)
        ran = run(made, "--digest", "--seed", 7, "--service", up.address, "--job", "a", env=env)
        assert ran["digest"] == local_digest(tmp_path, SHUFFLE)
        others = ["s3://bucket/*", "s3://bucket/a/../b", f"{s3.url}/bucket/a/part-0.tfrecord"]
        for job, address in enumerate(others):
            made = pipeline(tmp_path, [address])
            error = failed(made, 2, "--service", up.address, "--job", job, env=env)
            assert "outside the directories that pipelines may read" in error["message"]
            assert "s3://bucket/a/" in error["message"]


# ---- listing ----


def test_ls_prints_names_and_sizes(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    with S3Server({"bucket": {"d/a": b"123", "d/b": b"", "d/e/f": b"1"}}) as s3:
        env = of_server(s3)
        ran = cachew("ls", tmp_path / "a", "s3://bucket/d/", env=env)
        lines = [line.split() for line in ran.out.splitlines()]
        assert lines == [["5", str(tmp_path / "a")], ["3", "s3://bucket/d/a"], ["0", "s3://bucket/d/b"]]
        found = cachew("ls", "--json", "s3://bucket/**", env=env).json
        assert found["bytes"] == 4 and len(found["files"]) == 3
        assert json.dumps(found["files"][2]) == '{"name": "s3://bucket/d/e/f", "size": 1}'
        ran = cachew("ls", "s3://bucket/none*", env=env)
        assert ran.code == 2 and "no file matches s3://bucket/none*" in ran.err
