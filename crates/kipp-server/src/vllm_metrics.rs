//! The same numbers by vLLM's names, for routers and dashboards that look for those. Only what such programs read, and only
//! where it means the same here.

use kipp::engine::EngineStats;
use kipp::kv::BLOCK_TOKENS;

use crate::exposition::Exposition;
use crate::metrics::Counts;

/// Adds them to a page, whose labels they leave behind.
pub(crate) fn write(page: &mut Exposition, model: &str, engine: &EngineStats, counts: &Counts) {
    page.label(&[("model_name", model), ("engine", "0")]);
    let kv = engine.kv;
    let used = kv.used as f64 / kv.total.max(1) as f64;
    for (name, help, value) in [
        ("vllm:num_requests_running", "Requests that run", engine.running_requests as f64),
        ("vllm:num_requests_waiting", "Requests that wait", engine.waiting_requests as f64),
        ("vllm:kv_cache_usage_perc", "Blocks that sequences hold; 1 is all", used),
        // Its older name, which some routers still read.
        ("vllm:gpu_cache_usage_perc", "Blocks that sequences hold; 1 is all", used),
    ] {
        page.one("gauge", name, help, value);
    }
    let config = "vllm:cache_config_info";
    page.head("gauge", config, "The pool of blocks");
    let (block_tokens, blocks) = (BLOCK_TOKENS.to_string(), kv.total.to_string());
    page.line(config, &[("block_size", &block_tokens), ("num_gpu_blocks", &blocks)], 1);
    for (name, help, value) in [
        ("vllm:prompt_tokens_total", "Tokens of prompts, adopted ones too", engine.prompt_tokens),
        ("vllm:generation_tokens_total", "Tokens of answers", engine.generated_tokens),
        // vLLM counts prefixes in tokens.
        ("vllm:prefix_cache_queries_total", "Tokens of prompts, adopted ones too", engine.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "Tokens not evaluated again", engine.prefix_tokens_reused),
        ("vllm:num_preemptions_total", "Sequences that gave up their blocks", engine.preemptions),
    ] {
        page.one("counter", name, help, value);
    }
    for (name, help, histogram) in [
        ("vllm:time_to_first_token_seconds", "To the first token", &counts.time_to_first_token),
        ("vllm:inter_token_latency_seconds", "Between tokens of an answer", &counts.inter_token),
        // Its older name.
        ("vllm:time_per_output_token_seconds", "Between tokens of an answer", &counts.inter_token),
        ("vllm:e2e_request_latency_seconds", "From the submission to the end", &counts.request),
        ("vllm:request_queue_time_seconds", "Time in the queue", &counts.queue),
    ] {
        page.histogram(name, help, &histogram.buckets());
    }
}
