//! Bytes as a tokenizer file, and as a text and a list of ids for a small tokenizer.

use std::sync::LazyLock;

use kipp::TokenId;
use kipp::tokenizer::Tokenizer;

/// The small vocabulary, whose 4,096 rows two bytes of input reach.
static TINY: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
    let json = include_bytes!("../../models/kipp-tiny/tokenizer.json");
    Tokenizer::from_json(json).and_then(|tokenizer| tokenizer.with_rows(4096)).ok()
});

/// Reads the bytes as a file; a file that is accepted must round-trip them. Then encodes them as text and decodes them as
/// ids, whole and one at a time.
///
/// # Panics
/// Where a promise of the tokenizer is broken.
pub fn tokenizer(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(read) = Tokenizer::from_json(bytes) {
        round_trip(&read, &text);
    }
    let Some(tiny) = &*TINY else { return };
    round_trip(tiny, &text);
    // Guards that lie anywhere only turn markers into text.
    let guards: Vec<_> = bytes.chunks_exact(2).map(|two| two[0] as usize..two[1] as usize).take(8).collect();
    let guarded = tiny.encode_guarded(&text, &guards);
    assert_eq!(tiny.decode(&guarded, false), tiny.decode(&tiny.encode_with_control(&text), false));
    let ids: Vec<TokenId> =
        bytes.chunks_exact(2).map(|two| TokenId::from(u16::from_le_bytes([two[0], two[1]])) % 4096).collect();
    streams_whole(tiny, &ids);
}

/// Encoding and decoding again changes nothing more: the decoded text is in NFC between its markers.
fn round_trip(tokenizer: &Tokenizer, text: &str) {
    for ids in [tokenizer.encode(text), tokenizer.encode_with_control(text)] {
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.len()));
        streams_whole(tokenizer, &ids);
    }
    let ids = tokenizer.encode(text);
    assert_eq!(tokenizer.decode(&ids, false).map(|decoded| tokenizer.encode(&decoded)), Ok(ids));
}

/// Deltas joined are the whole, and no more than three bytes wait.
fn streams_whole(tokenizer: &Tokenizer, ids: &[TokenId]) {
    for skip_special in [false, true] {
        let (mut decoder, mut joined) = (tokenizer.stream_decoder(skip_special), String::new());
        for &id in ids {
            // An id that is refused leaves the text short, which the comparison below finds.
            joined += decoder.push(id).unwrap_or_default();
            assert!(decoder.held_bytes() <= 3);
        }
        joined += decoder.finish();
        assert_eq!(tokenizer.decode(ids, skip_special), Ok(joined));
    }
}
