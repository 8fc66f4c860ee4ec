"""Data sets of the Hugging Face hub by address, black box, with a server that plays the hub."""

import pytest
from command import BATCH, SHUFFLE, cachew, failed, run, write
from object_servers import HubServer, WebServer
from test_object_storage import no_credentials, shards  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("own_index_dir", "no_credentials")
SMALL = {"README.md": b"# words"}


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    for name in ("HF_TOKEN", "HF_HOME", "HF_ENDPOINT", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def chain(files, op="tfrecord"):
    return [{"op": op, "files": files}, SHUFFLE, BATCH]


@pytest.mark.parametrize("revision", ["", "@v1.0", "@refs/convert/parquet"])
def test_the_batches_are_those_of_local_files(tmp_path, revision):
    files = {f"data/train/{name}": content for name, content in shards(tmp_path).items()}
    other = {"data/train/part-0.tfrecord": b"of another revision"} | SMALL
    versions = {"main": other, "v1.0": other, "refs/convert/parquet": other}
    versions[revision[1:] or "main"] = files | SMALL | {"data/a b.txt": b"x"}
    local = run(write(tmp_path / "local.json", chain("data/*.tfrecord")), "--digest")
    root = f"hf://datasets/me/words{revision}"
    with (
        WebServer({}) as cdn,
        HubServer({"me/words": versions}, cdn, page=2, token="hf_secret") as hub,
    ):
        env = {"HF_ENDPOINT": hub.url + "/", "HF_TOKEN": "hf_secret"}
        for pattern in (f"{root}/data/train/*.tfrecord", f"{root}/**/part-{{0,1,2}}.tfrecord"):
            pipeline = write(tmp_path / "p.json", chain(pattern))
            assert run(pipeline, "--digest", env=env)["digest"] == local["digest"], pattern
        assert cdn.requests and not any("authorization" in r.headers for r in cdn.requests)
        assert all(r.headers["authorization"] == "Bearer hf_secret" for r in hub.requests)
        listed = cachew("ls", f"{root}/data/*", env=env)
        assert listed.code == 0 and "a b.txt" in listed.out and "part-0" not in listed.out


def test_a_token_of_a_file(tmp_path):
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "token").write_text("hf_kept\n")
    with HubServer({"me/words": {"main": {"a.txt": b"1\n2\n"}}}, token="hf_kept") as hub:
        pipeline = write(tmp_path / "p.json", chain("hf://datasets/me/words/a.txt", "text"))
        env = {"HF_ENDPOINT": hub.url}
        assert run(pipeline, env=env | {"HF_HOME": str(tmp_path / "hub")})["elements"] == 2
        assert run(pipeline, env=env | {"HF_TOKEN": "hf_kept"})["elements"] == 2
        message = failed(pipeline, 1, env=env)["message"]
        assert "HTTP status 401 RepoNotFound: about RepoNotFound" in message
        assert "token: none: neither HF_TOKEN nor" in message and f"endpoint: {hub.url}" in message
        message = failed(pipeline, 1, env=env | {"HF_TOKEN": "hf_old"})["message"]
        assert "token: that of the environment variable HF_TOKEN" in message and "hf_old" not in message


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("hf://datasets/me/other/*.txt", 1, ["404 RepoNotFound"]),
        ("hf://datasets/me/words@v9/a.txt", 1, ["404 RevisionNotFound"]),
        ("hf://datasets/me/words/b.txt", 2, ["no file matches"]),
        ("hf://datasets/me/words/none/*.txt", 2, ["no file matches"]),
        ("hf://datasets/me/words", 2, ["hf://datasets/OWNER/NAME"]),
        ("hf://models/me/words/a.txt", 2, ["hf://datasets/OWNER/NAME/PATH"]),
    ],
)
def test_what_is_not_there(tmp_path, address, code, words):
    with HubServer({"me/words": {"main": {"a.txt": b"1\n2\n"}}}) as hub:
        error = failed(write(tmp_path / "p.json", chain(address, "text")), code, env={"HF_ENDPOINT": hub.url})
    assert all(word in error["message"] for word in words), error["message"]


def test_a_file_that_changes_during_the_run(tmp_path):
    """The version is that of the hub, also of a file that another server gives."""
    files = shards(tmp_path)
    with WebServer({}) as cdn, HubServer({"me/words": {"main": files}}, cdn) as hub:
        env = {"HF_ENDPOINT": hub.url}
        pipeline = write(tmp_path / "p.json", chain("hf://datasets/me/words/part-*"))
        run(pipeline, env=env)
        state = tmp_path / "state"
        run(pipeline, "--batches", 1, "--state", state, env=env)
        name = "part-1.tfrecord"
        files[name] = files[name][:-20] + bytes(20)
        assert failed(pipeline, 2, "--state", state, env=env)["kind"] == "state"
