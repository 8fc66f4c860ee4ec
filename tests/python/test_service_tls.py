"""A service with TLS and a token, from Python: who is let in, and what is said to who is not."""

import json
import subprocess

import cachew
import pytest
from cachew import Dataset
from certificates import sign
from conftest import COMMAND
from deadlines import HANG_S

DATA = Dataset.range(2000).assign(y="value * 3").shuffle().batch(32)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls") / "keys"
    subprocess.run([COMMAND, "keys", "init", directory], check=True, capture_output=True, timeout=HANG_S)
    return directory


@pytest.fixture(scope="module")
def token(keys):
    return (keys / "token").read_text().strip()


class Up:
    """`cachew up` over TLS, with a certificate from `keys`."""

    def __init__(self, keys, *options, cert=None, key=None):
        self.process = subprocess.Popen(
            [
                COMMAND,
                "up",
                "--listen",
                "127.0.0.1:0",
                "--end-with-stdin",
                "--drain-timeout",
                "5",
                "--tls-cert",
                cert or keys / "server.pem",
                "--tls-key",
                key or keys / "server-key.pem",
                "--tls-ca",
                keys / "ca.pem",
                "--token-file",
                keys / "token",
                *options,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.address = json.loads(self.process.stdout.readline())["ready"]["address"]

    def __enter__(self):
        return self.address

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(HANG_S) == 0


@pytest.fixture(scope="module")
def address(keys):
    with Up(keys) as where:
        yield where


def hashes(iterator):
    return [batch.hash() for batch in iterator]


def refusal(address, **options):
    with pytest.raises(cachew.ServiceError) as caught:
        DATA.distribute(address, **options)
    return str(caught.value)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_batches_over_tls(address, keys, token, transport):
    assert hashes(
        DATA.distribute(address, tls_ca=keys / "ca.pem", token=token, transport=transport)
    ) == hashes(DATA.iterator())


def test_a_state_goes_on_over_tls(address, keys, token):
    iterator = DATA.distribute(address, tls_ca=str(keys / "ca.pem"), token=token)
    begin = [next(iterator).hash() for _ in range(5)]
    iterator.load_state_dict(iterator.state_dict())
    assert begin + hashes(iterator) == hashes(DATA.iterator())


def test_loaders_speak_tls(address, keys, token):
    torch = pytest.importorskip("cachew.torch")
    with pytest.raises(cachew.ServiceError, match="the service expects TLS"):
        next(iter(torch.loader(DATA, service=address, token=token)))
    there = torch.loader(DATA, service=address, token=token, tls_ca=keys / "ca.pem")
    assert [batch["y"].tolist() for batch in there] == [batch["y"].tolist() for batch in DATA.iterator()]
    there.close()


def test_mutual_tls(keys, token):
    own = {"tls_cert": keys / "client.pem", "tls_key": keys / "client-key.pem"}
    with Up(keys, "--tls-mutual") as address:
        assert "certificate" in refusal(address, tls_ca=keys / "ca.pem", token=token)
        assert hashes(DATA.distribute(address, tls_ca=keys / "ca.pem", token=token, **own)) == hashes(
            DATA.iterator()
        )


def test_another_authority_is_refused(address, token, tmp_path):
    subprocess.run(
        [COMMAND, "keys", "init", tmp_path / "others"], check=True, capture_output=True, timeout=HANG_S
    )
    assert "certificate is not accepted" in refusal(
        address, tls_ca=tmp_path / "others" / "ca.pem", token=token
    )


def test_an_expired_certificate_is_refused(keys, token, tmp_path):
    """The dispatcher's: workers do not come to it either."""
    cert, key = sign(keys, tmp_path, "expired", -1)
    process = subprocess.Popen(
        [
            COMMAND,
            "dispatcher",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            cert,
            "--tls-key",
            key,
            "--token-file",
            keys / "token",
        ],
        stdout=subprocess.PIPE,
    )
    with process.stdout as out:
        address = json.loads(out.readline())["ready"]["address"]
        assert "certificate has expired" in refusal(address, tls_ca=keys / "ca.pem", token=token)
        process.terminate()
        assert process.wait(HANG_S) == 0


def test_a_missing_or_wrong_token_is_refused(address, keys, token, monkeypatch):
    monkeypatch.delenv("CACHEW_TOKEN", raising=False)
    assert "the service expects a token" in refusal(address, tls_ca=keys / "ca.pem")
    said = refusal(address, tls_ca=keys / "ca.pem", token="a-wrong-secret")
    assert "the token is wrong" in said and "a-wrong-secret" not in said
    monkeypatch.setenv("CACHEW_TOKEN", token)
    assert hashes(DATA.distribute(address, tls_ca=keys / "ca.pem")) == hashes(DATA.iterator())


def test_without_tls_the_error_asks_for_it(address, token):
    assert "the service expects TLS" in refusal(address, token=token)


@pytest.mark.parametrize(
    ("options", "attribute"),
    [
        ({"tls_cert": "a.pem"}, "tls_key"),
        ({"tls_key": "a.pem"}, "tls_cert"),
        ({"tls_ca": ""}, "tls_ca"),
        ({"tls_ca": 3}, "tls_ca"),
        ({"tls_ca": "a\0b"}, "tls_ca"),
    ],
)
def test_options_that_do_not_fit(options, attribute):
    with pytest.raises(cachew.OptionError) as caught:
        DATA.distribute("127.0.0.1:1", **options)
    assert caught.value.attribute == attribute and attribute in str(caught.value)


def test_files_that_can_not_be_used(keys, tmp_path):
    for name in ("missing.pem", "empty.pem"):
        (tmp_path / "empty.pem").touch()
        with pytest.raises(cachew.OptionError, match=name) as caught:
            DATA.distribute("127.0.0.1:1", tls_ca=tmp_path / name)
        assert caught.value.file == str(tmp_path / name)
    with pytest.raises(cachew.OptionError, match="server-key"):  # another certificate's
        DATA.distribute("127.0.0.1:1", tls_cert=keys / "client.pem", tls_key=keys / "server-key.pem")


def test_the_local_service_takes_none(keys):
    with pytest.raises(cachew.OptionError, match="local"):
        DATA.distribute("local", tls_ca=keys / "ca.pem")


def test_a_secret_is_in_no_error():
    with pytest.raises(cachew.OptionError) as caught:
        DATA.distribute("127.0.0.1:1", token=b"a-secret")
    assert caught.value.attribute == "token" and "a-secret" not in str(caught.value) + caught.value.value
