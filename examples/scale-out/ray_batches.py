"""Answers a file of questions through a server or a gateway, many at a time, with Ray Data.

    pip install "ray[data]==2.60.0" openai==3.57.0
    python ray_batches.py --url http://127.0.0.1:30000/v1 questions.jsonl answers

Each line of the file is an object with a `question`; the answers are written as JSON lines into a folder. The requests of a
worker are in flight together, so that the servers always have a batch to work on; what runs where is the gateway's choice.
"""

import argparse
import asyncio

import ray
from openai import AsyncOpenAI

# In flight for each of Ray's workers; workers times this should exceed what all replicas run at once.
IN_FLIGHT = 32


class Answers:
    """One of Ray's workers: it keeps its connections from batch to batch."""

    def __init__(self, url, key, model, max_tokens):
        # Retries are for the moments in which a full server says 429, or one that leaves says 503.
        self.client = AsyncOpenAI(base_url=url, api_key=key, max_retries=8)
        self.model, self.max_tokens = model, max_tokens
        self.free = asyncio.Semaphore(IN_FLIGHT)

    async def answer(self, question):
        async with self.free:
            answer = await self.client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": question}],
                max_completion_tokens=self.max_tokens,
                reasoning_effort="none",
            )
        choice = answer.choices[0]
        return choice.message.content, choice.finish_reason, answer.usage.completion_tokens

    async def __call__(self, batch):
        answers = await asyncio.gather(*map(self.answer, batch["question"]))
        batch["answer"], batch["finish_reason"], batch["tokens"] = map(list, zip(*answers))
        yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:30000/v1")
    parser.add_argument("--key", default="none")
    parser.add_argument("--model", default="kipp-tiny")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("questions")
    parser.add_argument("answers")
    args = parser.parse_args()
    questions = ray.data.read_json(args.questions, lines=True)
    answers = questions.map_batches(
        Answers,
        fn_constructor_args=(args.url, args.key, args.model, args.max_tokens),
        batch_size=IN_FLIGHT,
        compute=ray.data.ActorPoolStrategy(size=args.workers),
        # They wait for servers, and need hardly any processor of their own.
        num_cpus=0.1,
    )
    answers.write_json(args.answers)


if __name__ == "__main__":
    main()
