//! Speed of the tokenizer beside its reference on one thread: loading, ordinary text, and one piece of any length.
//!
//! `cargo bench -p kipp --bench tokenizer`. The bars: ordinary text at least 4 times as fast as the reference, loading at
//! least 5 times, and twice the piece at most 2.5 times the time.
#![allow(clippy::unwrap_used, reason = "a bench stops at the first failure")]

use std::path::PathBuf;
use std::sync::LazyLock;

use divan::Bencher;
use divan::counter::BytesCount;
use kipp::tokenizer::Tokenizer;

fn main() {
    divan::main();
}

fn path(inside: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(inside)
}

static JSON: LazyLock<Vec<u8>> =
    LazyLock::new(|| std::fs::read(path("testdata/qwen3-tokenizer/tokenizer.json")).unwrap());
static OURS: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::from_json(&JSON).unwrap());
static REFERENCE: LazyLock<tokenizers::Tokenizer> =
    LazyLock::new(|| tokenizers::Tokenizer::from_bytes(&*JSON).unwrap());

/// Ordinary texts. Each is a list of paragraphs of a few hundred bytes, encoded one by one as prompts are.
const TEXTS: [&str; 3] = ["english", "code", "mixed"];

fn paragraphs(text: &str) -> Vec<String> {
    let whole = match text {
        "english" => std::fs::read_to_string(path("LICENSE")).unwrap(),
        "code" => ["added", "bpe", "json", "mod", "pretokenize", "vocab"]
            .map(|file| {
                std::fs::read_to_string(path(&format!("crates/kipp/src/tokenizer/{file}.rs"))).unwrap()
            })
            .concat(),
        _ => MIXED.to_owned(),
    };
    whole.split_inclusive("\n\n").map(str::to_owned).collect()
}

/// A few lines in scripts that Qwen is used with, some decomposed, with the signs that come along.
const MIXED: &str = "\
机器学习模型把文本切成小块,再把每一块换成一个数字。数字本身没有意义,但它们的顺序告诉模型接下来可能出现什么。(示例:2025年3月14日,共 1,234 个)

Модель читает текст по частям и предсказывает следующую часть; чем длиннее история, тем точнее догадка — но и тем дороже каждый шаг.

El modelo también entiende español: «¿cuántas fichas cuesta una pregunta?», preguntó la niña. Más o menos diez, según la ocasión.

モデルは文章を小さな断片に分けて読みます。断片の数が多いほど、計算には時間がかかります。

النموذج يقرأ النص قطعة بعد قطعة، ثم يخمّن القطعة التالية من كل ما سبق.

문장을 조각으로 나누고 나면, 각 조각은 하나의 번호가 됩니다.

| größe | Zeit (µs) | Anteil |\n|---|---:|---:|\n| klein | 12,5 | 3 % |\n| groß | 8.192 | 97 % | 🙂🚀

Cafe\u{301} and nai\u{308}ve are written in two ways, 👨‍👩‍👧 in one.
";

fn bytes_of(paragraphs: &[String]) -> BytesCount {
    BytesCount::new(paragraphs.iter().map(String::len).sum::<usize>())
}

#[divan::bench(args = TEXTS)]
fn encode(bencher: Bencher<'_, '_>, text: &str) {
    let paragraphs = paragraphs(text);
    LazyLock::force(&OURS);
    bencher.counter(bytes_of(&paragraphs)).bench_local(|| {
        paragraphs.iter().map(|paragraph| OURS.encode_with_control(paragraph).len()).sum::<usize>()
    });
}

#[divan::bench(args = TEXTS)]
fn encode_reference(bencher: Bencher<'_, '_>, text: &str) {
    let paragraphs = paragraphs(text);
    LazyLock::force(&REFERENCE);
    // `encode_fast` is its quickest way: no offsets.
    bencher.counter(bytes_of(&paragraphs)).bench_local(|| {
        paragraphs
            .iter()
            .map(|paragraph| REFERENCE.encode_fast(paragraph.as_str(), false).unwrap().len())
            .sum::<usize>()
    });
}

#[divan::bench(sample_count = 10)]
fn load(bencher: Bencher<'_, '_>) {
    bencher.counter(BytesCount::new(JSON.len())).bench_local(|| Tokenizer::from_json(&JSON).unwrap());
}

#[divan::bench(sample_count = 5)]
fn load_reference(bencher: Bencher<'_, '_>) {
    bencher
        .counter(BytesCount::new(JSON.len()))
        .bench_local(|| tokenizers::Tokenizer::from_bytes(&*JSON).unwrap());
}

#[divan::bench(args = [1 << 18, 1 << 19, 1 << 20, 1 << 21], sample_count = 5)]
fn one_letter(bencher: Bencher<'_, '_>, bytes: usize) {
    let text = "a".repeat(bytes);
    LazyLock::force(&OURS);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| OURS.encode(&text).len());
}

#[divan::bench(args = TEXTS)]
fn decode(bencher: Bencher<'_, '_>, text: &str) {
    let ids = OURS.encode(&paragraphs(text).concat());
    bencher
        .counter(BytesCount::new(OURS.decode(&ids, true).unwrap().len()))
        .bench_local(|| OURS.decode(&ids, true));
}
