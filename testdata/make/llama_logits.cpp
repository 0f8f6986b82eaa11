// Write llama.cpp's logits over given ids: every position, little-endian f32, [count, vocabulary].
//
//   llama_logits MODEL.gguf IDS.u32 OUT.f32 [COUNT [WINDOW]]
//
// The first COUNT ids (default and 0: all) are fed in windows of WINDOW (default: all of them in one), each window from an
// empty cache and as one batch. CPU only, llama.cpp's defaults otherwise (f16 KV, weights repacked, activations coded).
// llama.cpp's own programs do not give this: llama-perplexity tokenizes text by itself and skips each window's first half.
//
// Build against a llama.cpp source tree L built with shared libraries in B/bin:
//   c++ -O2 -std=c++17 -I L/include -I L/ggml/include llama_logits.cpp -o llama_logits -L B/bin -lllama -lggml -lggml-base -Wl,-rpath,B/bin

#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void fail(const char * what, const char * which) {
    fprintf(stderr, "llama_logits: %s: %s\n", what, which);
    exit(1);
}

static std::vector<uint32_t> read_ids(const char * path) {
    FILE * file = fopen(path, "rb");
    if (!file) fail("cannot open", path);
    std::vector<uint32_t> ids;
    uint8_t b[4];
    while (fread(b, 1, 4, file) == 4) {
        ids.push_back(b[0] | b[1] << 8 | b[2] << 16 | (uint32_t) b[3] << 24);
    }
    fclose(file);
    return ids;
}

static void only_warnings(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char ** argv) {
    if (argc < 4) fail("usage", "llama_logits MODEL.gguf IDS.u32 OUT.f32 [COUNT [WINDOW]]");
    llama_log_set(only_warnings, nullptr);
    std::vector<uint32_t> ids = read_ids(argv[2]);
    const size_t asked = argc > 4 ? strtoul(argv[4], nullptr, 10) : 0;
    const size_t count = asked ? std::min(asked, ids.size()) : ids.size();
    if (!count) fail("no ids in", argv[2]);
    const size_t window = argc > 5 ? std::max(1ul, strtoul(argv[5], nullptr, 10)) : count;

    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    if (!model) fail("cannot load", argv[1]);
    const size_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));

    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = (uint32_t) window;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) fail("cannot make a context for", argv[1]);

    FILE * out = fopen(argv[3], "wb");
    if (!out) fail("cannot create", argv[3]);
    llama_batch batch = llama_batch_init((int32_t) window, 0, 1);
    for (size_t start = 0; start < count; start += window) {
        batch.n_tokens = (int32_t) std::min(window, count - start);
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            batch.token[i] = (llama_token) ids[start + i];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        llama_memory_clear(llama_get_memory(context), true);
        if (llama_decode(context, batch) != 0) fail("cannot evaluate", argv[1]);
        for (int32_t i = 0; i < batch.n_tokens; i++) {
            if (fwrite(llama_get_logits_ith(context, i), sizeof(float), n_vocab, out) != n_vocab) fail("cannot write", argv[3]);
        }
    }
    if (fclose(out) != 0) fail("cannot write", argv[3]);
    llama_batch_free(batch);
    llama_free(context);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
