"""EleutherAI's evaluation harness over `/v1/completions`: `lm_eval_client.py URL KIPP`. Its log-likelihoods are those that
`kipp perplexity` finds for the same tokens. The server's own tokenizer is its tokenizer; nothing is downloaded."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import lm_eval.evaluator
import lm_eval.tasks
import requests

import checks
from checks import same

url, kipp = sys.argv[1:]
TEXTS = [
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park with her dog.",
    "Tom had a red ball. One day the ball rolled into the pond, and a big frog sat on it.",
]
# The largest difference of a text's log-likelihood; both sums are of the same terms.
TOLERANCE = 1e-4
MODEL = {"model": "kipp-tiny", "base_url": f"{url}/v1/completions", "tokenizer_backend": "auto"}


def post(path, **fields):
    answer = requests.post(url + path, json=fields, timeout=60)
    answer.raise_for_status()
    return answer.json()


def scores(ids):
    """Natural log-probabilities of all ids but the first, as `kipp perplexity` finds them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ids")
        with open(path, "wb") as file:
            file.write(struct.pack(f"<{len(ids)}I", *ids))
        line = [kipp, "perplexity", "--ids", path, "--per-token", "--json", "--window", str(len(ids))]
        report = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    return [-nll for nll in report["per_token"]]


def parts(text):
    """A text, its first word, and the rest as it is and backwards, which is less likely."""
    at = text.index(" ")
    return {"text": text, "first": text[:at], "rest": text[at:], "wrong": text[:at:-1]}


def evaluate(task, **model):
    """Samples of a task over our texts; tasks are ordinary YAML in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "texts.jsonl")
        with open(data, "w") as file:
            file.writelines(json.dumps(parts(text)) + "\n" for text in TEXTS)
        shared = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\n"
        with open(os.path.join(folder, "task.yaml"), "w") as file:
            file.write(f"task: texts\n{shared}{task}")
        tasks = lm_eval.tasks.TaskManager(include_path=folder, include_defaults=False)
        results = lm_eval.evaluator.simple_evaluate(
            model="local-completions", model_args=MODEL | model, tasks=["texts"], task_manager=tasks, log_samples=True
        )
    return results["samples"]["texts"]


def log_likelihoods_are_those_of_kipp_perplexity():
    task = """
output_type: loglikelihood
doc_to_text: "{{first}}"
doc_to_target: "{{rest}}"
target_delimiter: ""
metric_list: [{metric: acc}]
"""
    for sample, text in zip(evaluate(task), TEXTS, strict=True):
        ids = post("/tokenize", prompt=text)["tokens"]
        given = len(post("/tokenize", prompt=parts(text)["first"])["tokens"])
        expected = sum(scores(ids)[given - 1 :])
        found = float(sample["resps"][0][0][0])
        print(f"   lm-eval {found:.6f}, kipp perplexity {expected:.6f}")
        assert math.isclose(found, expected, rel_tol=0, abs_tol=TOLERANCE), (found, expected)


def rolling_log_likelihoods_are_too():
    task = """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}]
"""
    [end] = post("/tokenize", prompt="<|im_end|>")["tokens"]
    for sample, text in zip(evaluate(task), TEXTS, strict=True):
        # The harness puts the end token before a text, so that the first token has a probability.
        expected = sum(scores([end, *post("/tokenize", prompt=text)["tokens"]]))
        found = float(sample["resps"][0][0])
        assert math.isclose(found, expected, rel_tol=0, abs_tol=TOLERANCE), (found, expected)


def several_choices_at_a_time():
    task = """
output_type: multiple_choice
doc_to_text: "{{first}}"
doc_to_choice: ["{{rest}}", "{{wrong}}"]
doc_to_target: 0
target_delimiter: ""
metric_list: [{metric: acc}]
"""
    for sample in evaluate(task, num_concurrent=4, batch_size=2):
        same(sample["acc"], 1.0)


def generations_end_at_their_stop():
    task = """
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "x"
generation_kwargs: {until: ["."], max_gen_toks: 48, do_sample: false, temperature: 0}
metric_list: [{metric: exact_match}]
"""
    for sample, text in zip(evaluate(task), TEXTS, strict=True):
        [[answer]] = sample["resps"]
        expected = post("/v1/completions", prompt=text, stop=["."], max_tokens=48, temperature=0)
        same(answer, expected["choices"][0]["text"])
        assert answer and "." not in answer, answer


checks.run([
    log_likelihoods_are_those_of_kipp_perplexity,
    rolling_log_likelihoods_are_too,
    several_choices_at_a_time,
    generations_end_at_their_stop,
])
