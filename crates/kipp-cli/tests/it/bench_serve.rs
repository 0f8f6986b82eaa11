//! `kipp bench serve`: cases, figures, comparisons and refusals, on servers of its own, at URLs, and on things that are none.
//! Speeds are whatever they are here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serve::Serving;
use crate::{code, json, kipp, refusal, stderr, stdout};

/// A short measurement.
const QUICK: [&str; 12] = [
    "--runs",
    "1",
    "--turns",
    "2",
    "-n",
    "6",
    "--prompt-words",
    "12",
    "--requests",
    "6",
    "--answer-seconds",
    "60",
];

fn bench(flags: &[&str]) -> Vec<Value> {
    let results = json(&[&["bench", "serve"], flags, &QUICK[..], &["--json"]].concat());
    results.as_array().unwrap().clone()
}

fn refused(flags: &[&str], expected: i32) -> String {
    refusal(&[&["bench", "serve"], flags, &QUICK[..]].concat(), expected)
}

fn figure(result: &Value, name: &str) -> f64 {
    result["case"]["figures"][name]["median"].as_f64().unwrap_or_else(|| panic!("{name}: {result}"))
}

#[test]
fn a_server_of_its_own_is_measured_beside_the_bare_engine() {
    let flags = ["kipp-tiny", "--bare", "--threads", "1", "--ctx", "512", "--clients", "1,3"];
    let more =
        ["--choices", "2", "--rate", "200", "--objective-ttft-ms", "60000", "--objective-itl-ms", "60000"];
    let results = bench(&[&flags[..], &more].concat());
    let name = |result: &Value| {
        format!("{} {}", result["case"]["name"].as_str().unwrap(), result["server"].as_str().unwrap())
    };
    let names: Vec<String> = results.iter().map(name).collect();
    let expected = ["closed1", "closed3", "choices2", "open200"];
    let expected: Vec<String> =
        expected.iter().flat_map(|case| [format!("{case} kipp"), format!("{case} bare")]).collect();
    assert_eq!(names, expected);
    for result in &results {
        let of = |name: &str| figure(result, name);
        assert_eq!(of("errors"), 0.0, "{result}");
        assert!(of("tok_s") > 0.0 && of("ttft_p50_ms") > 0.0 && of("itl_p99_ms") >= of("itl_p50_ms"));
        assert!(of("e2e_p99_ms") >= of("ttft_p50_ms") && of("good_share") == 1.0);
        // Words of a small vocabulary are at least a token each.
        assert!(of("prompt_tokens_mean") >= 12.0 && of("cached_tokens_mean") == 0.0, "{result}");
    }
    // Clients x turns x tokens; one client, two turns of two choices; six requests.
    let tokens: Vec<f64> = results.iter().step_by(2).map(|result| figure(result, "output_tokens")).collect();
    assert_eq!(tokens, [12.0, 36.0, 24.0, 36.0]);
    let process = &results[0]["case"]["runs"][0];
    assert_eq!((&process["server"], &process["backend"]["threads"]), (&"kipp".into(), &1.into()));
    assert!(process["backend"]["kv_blocks"].as_f64().unwrap() > 0.0 && process["load_ms"].is_number());
    assert!(results[0]["ratios"].is_null() && results[1]["ratios"]["tok_s"]["median"].is_number());
}

#[test]
fn servers_at_urls_are_measured_in_turn_and_prompts_can_begin_alike() {
    let (one, two) = (Serving::start(&["--api-key", "sk-1"]), Serving::start(&["--api-key", "sk-1"]));
    let (one, two) = (format!("http://{}", one.address()), format!("http://{}/v1", two.address()));
    let flags = ["--against", &two, "--api-key", "sk-1", "--clients", "2", "--common-prefix", "0.9"];
    let longer = ["--prompt-words", "100", "--chat"];
    let results = json(
        &[
            &["bench", "serve", &one],
            &flags[..],
            &["--runs", "2", "--turns", "2", "-n", "4", "--json"],
            &longer,
        ]
        .concat(),
    );
    let results = results.as_array().unwrap();
    assert_eq!((results.len(), &results[0]["server"]), (2, &"kipp".into()));
    assert!(results[1]["server"].as_str().unwrap().starts_with("kipp 127.0.0.1:"));
    // The warm-up made the common beginning known.
    assert!(results.iter().all(|result| figure(result, "cached_tokens_mean") >= 32.0), "{results:?}");
    assert!(results[1]["ratios"]["ttft_p50_ms"]["median"].is_number());
    let table = stdout(&[&["bench", "serve", &one, "--clients", "1"], &flags[2..4], &QUICK[..]].concat());
    assert!(
        table.starts_with("| case ") && table.contains("| closed1 ") && table.contains("TTFT p50"),
        "{table}"
    );

    // A key that is missing or wrong, and a model that it does not have.
    assert!(refused(&[&one], 1).contains("--api-key"));
    let wrong = refused(&[&one, "--api-key", "sk-1", "--served-model", "gpt-9"], 1);
    assert!(wrong.contains("gpt-9") && wrong.contains("kipp-tiny"), "{wrong}");
}

#[test]
fn what_cannot_be_measured_is_refused_soon_and_clearly() {
    let started = Instant::now();
    for (flags, named) in [
        (vec!["--clients", "0"], "--clients"),
        (vec!["--clients", "2000"], "--clients"),
        (vec!["--rate", "0"], "--rate"),
        (vec!["--rate", "nan"], "--rate"),
        (vec!["--choices", "0"], "--choices"),
        (vec!["--common-prefix", "2"], "--common-prefix"),
        (vec!["--objective-itl-ms", "0"], "--objective-itl-ms"),
        (vec!["--backend", "oracle"], "--backend"),
        (vec!["--weights", "kipp-tiny"], "--weights"),
    ] {
        let error = refused(&flags, 2);
        assert!(error.contains(named), "{flags:?}: {error}");
    }
    let nobody = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    assert!(refused(&[&nobody, "--bare"], 2).contains("--bare"));
    assert!(refused(&[&nobody, "--record", "x"], 2).contains("--weights"));
    assert!(refused(&[&nobody], 1).contains("cannot connect"));
    assert!(refused(&["https://127.0.0.1:1"], 1).contains("https"));
    assert!(refused(&["ftp://127.0.0.1"], 1).contains("http://HOST:PORT"));
    assert!(refused(&["http://h:0"], 1).contains("http://HOST:PORT"));
    assert!(refused(&["missing.gguf"], 1).contains("missing.gguf"));
    assert!(refused(&["kipp-tiny", "--ctx", "9999999"], 2).contains("--ctx"));
    assert!(started.elapsed() < Duration::from_secs(60));
}

/// Says the same to whoever connects, after the request's head came.
fn saying(models: &'static str, stream: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client: TcpStream = client.unwrap();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            let (mut line, mut length, mut path) = (String::new(), 0, String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if path.is_empty() {
                    path = line.clone();
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let _ = reader.read_exact(&mut vec![0; length]);
            let answer = if path.contains("/v1/models") { models } else { stream };
            let _ = client.write_all(answer.as_bytes());
            if answer.is_empty() {
                // Never answers.
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_secs(60));
                    drop(client);
                });
            }
        }
    });
    url
}

const MODELS: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"data\":[{\"id\":\"m\"}]}";

#[test]
fn what_is_no_openai_endpoint_is_told_and_nothing_hangs() {
    let started = Instant::now();
    let page = saying("HTTP/1.1 200 OK\r\n\r\n<html>hello</html>", "");
    let error = refused(&[&page], 1);
    assert!(error.contains("no OpenAI endpoint") && error.contains("<html>"), "{error}");
    assert!(refused(&[&saying("SSH-2.0-x\r\n", "")], 1).contains("not HTTP"));
    assert!(refused(&[&saying("HTTP/1.1 503 no\r\n\r\nloading", "")], 1).contains("503"));
    let document = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"choices\":[{\"text\":\"no stream\"}]}\n";
    assert!(refused(&[&saying(MODELS, document)], 1).contains("no stream of OpenAI's events"));
    let cut =
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n";
    assert!(refused(&[&saying(MODELS, cut)], 1).contains("ended before"));
    let failing = "HTTP/1.1 500 no\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"on fire\"}}";
    assert!(refused(&[&saying(MODELS, failing)], 1).contains("status 500: on fire"));
    let silent = ["--answer-seconds", "2"];
    let url = saying(MODELS, "");
    let out = kipp(&[&["bench", "serve", &url, "--runs", "1"], &silent[..]].concat()).output().unwrap();
    assert!(code(&out) == 1 && stderr(&out).contains("nothing came"), "{}", stderr(&out));
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn faults_are_counted_and_not_hidden() {
    // Room for one that waits: of eight clients most are refused.
    let full = Serving::start(&["--max-queue", "1"]);
    let url = format!("http://{}", full.address());
    // Long prompts, so that the step that admits is one in which others come.
    let flags =
        ["--clients", "16", "--turns", "3", "-n", "4", "--runs", "1", "--prompt-words", "150", "--json"];
    let results = json(&[&["bench", "serve", &url], &flags[..]].concat());
    let results = results.as_array().unwrap();
    let refused = figure(&results[0], "errors_429");
    assert!(refused > 0.0 && figure(&results[0], "errors") == refused, "{results:?}");
    assert_eq!(figure(&results[0], "requests"), 48.0);
}

#[test]
fn records_of_servers_are_refused_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let flags = ["bench", "serve", "kipp-tiny", "--clients", "1", "--record", path, "--threads", "1"];
    let flags = [&flags[..], &QUICK].concat();
    let out = kipp(&flags).output().unwrap();
    // A debug build, refused before anything is measured.
    assert_eq!(code(&out), 3, "{}", stderr(&out));
    assert!(stderr(&out).contains("no record of bench serve"), "{}", stderr(&out));
    let out = kipp(&[&flags[..], &["--anyway", "a test", "--bare"]].concat()).output().unwrap();
    assert_eq!(code(&out), 0, "{}", stderr(&out));
    let files: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("kipp-tiny-bf16-serve-closed1-"), "{name}");
    let record: Value = serde_json::from_slice(&std::fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!((&record["what"], &record["name"]), (&"bench serve".into(), &"serve-closed1".into()));
    assert_eq!(record["results"]["beside"][0]["server"], "bare");
    assert_eq!(record["settings"]["generated_tokens"], 6);
    assert!(record["degraded"]["reason"] == "a test" && record["fingerprint"]["verdict"].is_string());
}
