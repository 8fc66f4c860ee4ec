"""Operators on audio against other implementations: decode_audio against soundfile, resample_audio against
soxr, mel_spectrogram against a transcription of its definition with NumPy's FFT, and the draws of random
operators by their distributions. tests/model/audio.py has exact models of decoding WAV files and of draws.
"""

import io
import struct

import numpy as np
import pytest

import cachew
from cachew import Dataset

RATE = 16000


def signal(n=RATE, channels=1, seed=1):
    """A chirp with harmonics and some noise, float32 [n] or [n, channels]."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)[:, None] / RATE
    pitch = 2 * np.pi * (120 + 60 * np.arange(1, channels + 1)) * (t + 0.4 * t**2)
    x = sum(np.sin(k * pitch) / k**1.5 for k in range(1, 12)) * 0.3 + rng.normal(size=pitch.shape) * 0.01
    return (x if channels > 1 else x[:, 0]).astype(np.float32)


def arrays(rows, rate=RATE):
    """A dataset of audio of different lengths: files of float32 samples, decoded."""
    rows = [np.asarray(r, np.float32) for r in rows]
    rates = np.full(len(rows), rate, np.int32)
    ds = Dataset.arrays({"audio": [float_wav(r) for r in rows], "rate": rates})
    ds = ds.decode_audio("audio", mono=rows[0].ndim == 1, sample_rate="")
    return ds.rename({"rate": "sample_rate"})


def values(dataset, name="audio", **options):
    return [np.array(e[name]) for e in dataset.iterator(**options)]


def encoded(data):
    return Dataset.arrays({"audio": list(data)})


def error_of(call, kind=cachew.Error):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def riff(data, channels, kind, size, rate):
    """A WAV file of the samples in `data`, of `size` bytes each."""
    head = struct.pack("<HHIIHH", kind, channels, rate, rate * size * channels, size * channels, 8 * size)
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wav(x, rate=RATE):
    """A WAV file of 16-bit samples."""
    return riff((x * 32767).astype("<i2").tobytes(), 1 if x.ndim == 1 else x.shape[1], 1, 2, rate)


def float_wav(x):
    return riff(x.astype("<f4").tobytes(), 1 if x.ndim == 1 else x.shape[1], 3, 4, RATE)


# ---- decode_audio ----

FORMATS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_U8"),
    ("WAV", "PCM_24"),
    ("WAV", "FLOAT"),
    ("WAV", "DOUBLE"),
    ("WAV", "ULAW"),
    ("AIFF", "PCM_16"),
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]
LOSSY = ("VORBIS", "OPUS", "MPEG_LAYER_III")  # other versions of decoders differ in the last bits


@pytest.mark.parametrize("form, subtype", FORMATS, ids=[f"{f}-{s}" for f, s in FORMATS])
def test_files_are_decoded_as_by_soundfile(form, subtype):
    soundfile = pytest.importorskip("soundfile")
    for channels in (1, 2):
        out = io.BytesIO()
        soundfile.write(out, signal(9000, channels), RATE, format=form, subtype=subtype)
        if form == "MP3" and "MP3" not in supported(out.getvalue()):
            pytest.skip("the system's libsndfile is older than 1.1 and has no MP3")
        want, rate = soundfile.read(io.BytesIO(out.getvalue()), dtype="float32", always_2d=True)
        [element] = list(encoded([out.getvalue()]).decode_audio("audio", mono=False))
        assert element["sample_rate"].dtype == np.int32 and int(element["sample_rate"]) == rate
        assert element["audio"].shape == want.shape
        np.testing.assert_allclose(element["audio"], want, rtol=0, atol=1e-4 if subtype in LOSSY else 0)
        [mono] = values(encoded([out.getvalue()]).decode_audio("audio"))
        np.testing.assert_array_equal(mono, np.asarray(element["audio"]).mean(axis=1))


def supported(data):
    try:
        list(encoded([data]).decode_audio("audio"))
    except cachew.RecordError as error:
        return "" if "no audio that libsndfile can decode" in str(error) else "MP3"
    return "MP3"


def test_the_sample_rate_may_have_another_name_or_none():
    ds = encoded([wav(signal(100), 8000)])
    assert ds.decode_audio("audio").schema.keys() == {"audio", "sample_rate"}
    assert ds.decode_audio("audio", sample_rate="").schema.keys() == {"audio"}
    [rate] = values(ds.decode_audio("audio", sample_rate="hz").select("hz"), "hz")
    assert rate == 8000
    said = error_of(lambda: ds.decode_audio("audio", sample_rate="audio").schema)
    assert "another name" in said


def claimed(data, frames):
    """A WAV file whose header claims other sizes than it has."""
    return data[:40] + struct.pack("<I", frames) + data[44:]


def flac_claiming(frames):
    """A FLAC file's header for so many frames, and no frame."""
    packed = RATE << 44 | 0 << 41 | 15 << 36 | frames
    info = struct.pack(">HH", 4096, 4096) + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
    return b"fLaC\x80" + len(info).to_bytes(3, "big") + info


GOOD = wav(signal(500))
BAD = {
    "empty": (b"", "0 bytes are no audio"),
    "no audio": (b"this is no audio, whatever its name says", "40 bytes are no audio"),
    "no samples": (wav(signal(0)), "has no samples"),
    "cut off": (GOOD[:-300], "its samples have 1000 bytes, but only 700 are there"),
    "header only": (GOOD[:44], "its samples have 1000 bytes, but only 0 are there"),
    "half a header": (GOOD[:30], "no audio"),
    "2^31 samples claimed": (claimed(GOOD, 2**31 - 2**20), "but only 1000 are there"),
    "2^36 frames claimed": (flac_claiming(2**36 - 1), "expected at most max_samples = 268435456"),
    "2^27 frames claimed": (flac_claiming(2**27), "damaged or cut off after 0 of 134217728 frames"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_files_fail_their_record(name):
    data, expected = BAD[name]
    ds = encoded([GOOD, data, GOOD]).decode_audio("audio")
    said = error_of(lambda: list(ds.iterator(memory="64MB")), cachew.RecordError)
    assert expected in said and "decode_audio" in said
    kept = list(ds.pad_or_trim("audio", 500).on_error("skip").batch(3).iterator(memory="64MB"))
    assert kept[0]["audio"].shape == (2, 500)


def test_files_of_unknown_size_are_decoded():
    for size in (0xFFFFFFFF, 0x7FFFFFFF):
        [x] = values(encoded([claimed(GOOD, size)]).decode_audio("audio"))
        assert len(x) == 500


def test_long_audio_fails_its_record():
    ds = encoded([wav(signal(100, 2))]).decode_audio("audio", max_samples=199)
    said = error_of(lambda: list(ds), cachew.RecordError)
    assert "100 frames of 2 channels: expected at most max_samples = 199" in said
    assert len(values(encoded([wav(signal(100, 2))]).decode_audio("audio", max_samples=200))[0]) == 100


def test_audio_operators_name_wrong_components():
    ds = Dataset.range(3)
    said = error_of(lambda: ds.decode_audio("value").schema)
    assert 'component is "value": expected bytes, but "value" is int64' in said
    said = error_of(lambda: ds.random_gain("value").schema)
    assert 'expected float32 with 0 or more dimensions, but "value" is int64' in said
    said = error_of(lambda: ds.pad_or_trim("value", 3).schema)
    assert 'expected at least one dimension, but "value" is int64' in said
    audio = arrays([signal(1000)])
    said = error_of(lambda: audio.spec_augment("audio").schema)
    assert 'expected float32 with 2 dimensions, but "audio" is float32[?]' in said
    said = error_of(lambda: audio.random_noise("audio", snr=[3, 2]).schema)
    assert "snr is [3,2]: expected the smaller number first" in said
    said = error_of(lambda: audio.mel_spectrogram("audio", n_fft=401).schema)
    assert "n_fft is 401: expected an even number" in said
    said = error_of(lambda: audio.mel_spectrogram("audio", f_max=8001).schema)
    assert "f_max is 8001: expected a frequency of at most rate / 2 = 8000 Hz" in said
    said = error_of(lambda: audio.drop("sample_rate").resample_audio("audio", 8000).schema)
    assert "sample_rate" in said


# ---- resample_audio ----


@pytest.mark.parametrize("before, after", [(44100, 16000), (16000, 44100), (8000, 16000), (48000, 47999)])
def test_audio_is_resampled_as_by_soxr(before, after):
    soxr = pytest.importorskip("soxr")
    rows = [signal(n, seed=n) for n in (1, 2, 100, 40000)]
    got = arrays(rows, before).resample_audio("audio", after)
    for x, element in zip(rows, got):
        want = soxr.resample(x, before, after)
        assert int(element["sample_rate"]) == after
        assert abs(len(element["audio"]) - len(want)) <= 1
        n = min(len(want), len(element["audio"]))
        np.testing.assert_allclose(element["audio"][:n], want[:n], rtol=0, atol=1e-5)
    stereo = signal(5000, 2)
    [both] = values(arrays([stereo], before).resample_audio("audio", after))
    [left] = values(arrays([stereo[:, 0]], before).resample_audio("audio", after))
    assert both.shape == (len(left), 2)
    np.testing.assert_allclose(both[:, 0], left, rtol=0, atol=1e-6)


def test_audio_of_the_same_rate_stays():
    x = signal(777)
    [same] = values(arrays([x], 16000).resample_audio("audio", 16000))
    np.testing.assert_array_equal(same, x)


def test_the_input_rate_may_be_an_attribute():
    ds = arrays([signal(1000)], 1).drop("sample_rate").resample_audio("audio", 8000, input_rate=16000)
    assert len(values(ds)[0]) in (500, 501) and ds.schema.keys() == {"audio"}


def test_impossible_rates_fail_the_record():
    for rate in (0, -5, 7, 2**30):
        said = error_of(lambda rate=rate: list(arrays([signal(50)], rate).resample_audio("audio", 16000)))
        assert f"the sample rate of the audio is {rate} Hz" in said


# ---- mel_spectrogram ----


def mel_of(f, slaney):
    if not slaney:
        return 2595 * np.log10(1 + f / 700)
    return np.where(f < 1000, 3 * f / 200, 15 + 27 * np.log(np.maximum(f, 1) / 1000) / np.log(6.4))


def hz_of(m, slaney):
    if not slaney:
        return 700 * (10 ** (m / 2595) - 1)
    return np.where(m < 15, 200 * m / 3, 1000 * np.exp(np.log(6.4) / 27 * (m - 15)))


def mel_spectrogram(x, n_fft=400, hop=160, mels=80, rate=16000, f_min=0.0, f_max=0.0, scale="htk"):
    """The definition in docs/audio.md, in float64."""
    slaney, f_max = scale == "slaney", f_max or rate / 2
    padded = np.pad(x.astype(np.float64), n_fft // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    frames = np.stack([padded[t * hop : t * hop + n_fft] * window for t in range(1 + len(x) // hop)])
    power = np.abs(np.fft.rfft(frames)) ** 2
    low, high = mel_of(np.float64(f_min), slaney), mel_of(np.float64(f_max), slaney)
    f = hz_of(np.linspace(low, high, mels + 2), slaney)
    k = np.arange(n_fft // 2 + 1)[:, None] * rate / n_fft
    triangles = np.maximum(0, np.minimum((k - f[:-2]) / np.diff(f)[:-1], (f[2:] - k) / np.diff(f)[1:]))
    return ((power @ triangles) * (2 / (f[2:] - f[:-2]) if slaney else 1)).T


SETTINGS = [
    {},
    {"scale": "slaney"},
    {"n_fft": 1024, "hop": 256, "mels": 128, "rate": 22050},
    {"n_fft": 512, "hop": 100, "mels": 40, "f_min": 50, "f_max": 7000, "scale": "slaney"},
    {"n_fft": 30, "hop": 7, "mels": 12},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=[str(i) for i in range(len(SETTINGS))])
def test_mel_spectrograms_follow_their_definition(settings):
    rows = [signal(n, seed=n) for n in (513, 700, 4001, 16000)]
    got = values(arrays(rows).mel_spectrogram("audio", **settings), threads=2)
    for x, mel in zip(rows, got):
        want = mel_spectrogram(x, **settings)
        assert mel.dtype == np.float32 and mel.shape == want.shape
        assert np.all(np.abs(mel - want) <= 1e-5 * want.max(axis=0) + 1e-12)


def test_the_windows_weights_are_right():
    """One sample of 1 at each place of a frame: the power is the window's square, in all coefficients."""
    n_fft = 64
    rows = [np.eye(3 * n_fft, dtype=np.float32)[n_fft + i] for i in range(n_fft)]
    got = values(arrays(rows).mel_spectrogram("audio", n_fft=n_fft, hop=3 * n_fft // 2, mels=4))
    for x, mel in zip(rows, got):
        want = mel_spectrogram(x, n_fft, 3 * n_fft // 2, 4)
        np.testing.assert_allclose(mel, want, rtol=1e-5, atol=1e-9)


def test_short_audio_fails_its_record():
    said = error_of(lambda: list(arrays([signal(200)]).mel_spectrogram("audio")), cachew.RecordError)
    assert "the audio has 200 samples: expected more than n_fft / 2 = 200" in said
    ds = arrays([signal(201), signal(205)]).pad_or_trim("audio", 320).mel_spectrogram("audio")
    assert ds.schema["audio"].shape == (80, 3) and next(iter(ds.batch(2)))["audio"].shape == (2, 80, 3)


# ---- draws ----


def test_noise_has_the_ratio_and_the_distribution_that_were_asked_for():
    x = signal(40000)
    ds = arrays([x] * 4).random_noise("audio", snr=20)
    noisy = values(ds, seed=3)
    for y in noisy:
        noise = (y - x).astype(np.float64)
        power = np.mean(x.astype(np.float64) ** 2)
        assert 10 * np.log10(power / np.mean(noise**2)) == pytest.approx(20, abs=0.1)
        z = np.sort(noise / noise.std())
        for quantile, at in ((0.001, -3.0902), (0.025, -1.95996), (0.25, -0.67449), (0.5, 0), (0.9, 1.28155)):
            assert z[int(quantile * len(z))] == pytest.approx(at, abs=0.12)
    assert len({y.tobytes() for y in noisy}) == 4
    silent = np.zeros(100, np.float32)
    assert not values(arrays([silent]).random_noise("audio"))[0].any()


def test_gains_lie_between_their_limits():
    one = np.ones(1, np.float32)
    gains = np.concatenate(values(arrays([one] * 300).random_gain("audio", db=[-6, 12]), seed=1))
    db = 20 * np.log10(gains.astype(np.float64))
    assert -6.001 <= db.min() < -5 and 11 < db.max() <= 12.001 and db.mean() == pytest.approx(3, abs=1)
    [fixed] = values(arrays([one]).random_gain("audio", db=20))
    assert fixed[0] == pytest.approx(10, rel=1e-6)


def test_masks_cover_what_they_may():
    shape = (20, 50)
    ds = Dataset.arrays({"mel": np.ones((200, *shape), np.float32)})
    masked = values(ds.spec_augment("mel", freq_mask=8, time_mask=30), "mel", seed=1)
    rows = [int((m == 0).all(axis=1).sum()) for m in masked]
    columns = [int((m == 0).all(axis=0).sum()) for m in masked]
    assert set(rows) == set(range(9)) and set(columns) >= {0, 30} and max(columns) == 30
    for m, r, c in zip(masked, rows, columns):
        assert (m == 0).sum() == r * shape[1] + c * shape[0] - r * c
    wide = values(ds.spec_augment("mel", freq_mask=99, time_mask=0, value=-1), "mel", seed=1)
    assert {int((m == -1).all(axis=1).sum()) for m in wide} >= {0, 20}


# ---- the whole ----


def test_a_pipeline_of_all_operators_gives_the_same_everywhere(tmp_path, service):
    for i in range(40):
        (tmp_path / f"{i:02d}.wav").write_bytes(wav(signal(2000 + 137 * i, 1 + i % 2, seed=i), 22050))
    ds = (
        Dataset.files(tmp_path / "*.wav")
        .shuffle()
        .decode_audio("data")
        .resample_audio("data", 16000)
        .random_gain("data")
        .random_noise("data")
        .pad_or_trim("data", 2400)
        .mel_spectrogram("data", mels=20)
        .spec_augment("data", freq_mask=4, time_mask=5)
        .batch(7)
    )
    whole = [b.hash() for b in ds.iterator(seed=5, epochs=2, threads=1)]
    assert [b.hash() for b in ds.iterator(seed=5, epochs=2, threads=3)] == whole
    assert len(set(whole)) == len(whole)
    with ds.iterator(seed=5, epochs=2) as it:
        head = [next(it).hash() for _ in range(5)]
        state = it.state_dict()
    assert head + [b.hash() for b in ds.iterator(seed=5, epochs=2, state=state)] == whole
    with ds.distribute(service.address, job="audio", seed=5, epochs=2) as batches:
        assert [b.hash() for b in batches] == whole


def test_decoded_audio_is_cached(tmp_path):
    files = [wav(signal(300 + i, seed=i)) for i in range(10)]
    for i, data in enumerate(files):
        (tmp_path / f"{i}.wav").write_bytes(data)
    ds = Dataset.files(tmp_path / "*.wav").decode_audio("data").cache()
    plain = [b.hash() for b in ds.iterator(epochs=2, cache="off")]
    for _ in range(2):
        assert [b.hash() for b in ds.iterator(epochs=2, cache_dir=tmp_path / "cache")] == plain
