//! A GGUF file of any bytes: opening it, and using all that an accepted one offers.

use kipp::artifact::Artifact;

/// Opens the bytes as a model; an accepted model is read through.
pub fn gguf(bytes: &[u8]) {
    let Ok(artifact) = Artifact::from_vec(bytes.to_vec()) else { return };
    let weights = artifact.weights();
    for matrix in weights.matrices() {
        let mut row = vec![0.0; matrix.cols];
        matrix.decode_row(matrix.rows - 1, &mut row);
    }
    for vector in weights.vectors() {
        let _ = vector.decode();
    }
    let _ = (artifact.check_finite(), artifact.tokenizer_source(), artifact.warnings(), artifact.id());
    let _ = (artifact.parameters(), artifact.scheme(), artifact.generation(), artifact.chat_template());
}
