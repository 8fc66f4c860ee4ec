"""Certificates that `cachew keys init` would not make, for tests: by the command openssl."""

import datetime
import subprocess

from deadlines import HANG_S


def sign(keys, directory, name, days):
    """A server's certificate and its key, of the authority in `keys`, valid from two days ago to `days` from
    now.
    """
    key, request, made = (directory / f"{name}{end}" for end in ("-key.pem", ".csr", ".pem"))
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp = [(now + datetime.timedelta(days=d)).strftime("%Y%m%d%H%M%SZ") for d in (-2, days)]
    (directory / "index").write_text("")
    (directory / "serial").write_text("01\n")
    (directory / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n"
        f"[d]\ndatabase={directory}/index\nserial={directory}/serial\nnew_certs_dir={directory}\n"
        "default_md=sha256\npolicy=p\nx509_extensions=e\n"
        "[p]\ncommonName=supplied\n"
        "[e]\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n"
    )

    def openssl(*words):
        ran = subprocess.run(
            ["openssl", *map(str, words)], check=False, capture_output=True, text=True, timeout=HANG_S
        )
        assert ran.returncode == 0, ran.stderr

    openssl(
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        key,
        "-out",
        request,
        "-subj",
        f"/CN={name}",
    )
    openssl(
        "ca",
        "-batch",
        "-notext",
        "-config",
        directory / "ca.cnf",
        "-cert",
        keys / "ca.pem",
        "-keyfile",
        keys / "ca-key.pem",
        "-in",
        request,
        "-out",
        made,
        "-startdate",
        stamp[0],
        "-enddate",
        stamp[1],
    )
    return made, key
