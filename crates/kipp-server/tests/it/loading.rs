//! Before the model is there.

use std::net::TcpListener;

use kipp_server::Loading;
use serde_json::json;

use crate::client;

#[test]
fn while_the_model_is_loaded_everything_is_503() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let loading = Loading::start(&listener).unwrap();
    for (method, path) in [("GET", "/health"), ("POST", "/v1/completions")] {
        let answer = client::request(port, method, path, &[], Some(b"{}"));
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &json!("loading")));
    }
    drop(loading);
}
