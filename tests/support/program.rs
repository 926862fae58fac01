// A program as people write it with reqwest, included twice by `tests/drop_in.rs`: what is imported is all that differs.

/// What the server saw and answered, one line a call.
pub(super) async fn run(base: &str) -> Result<Vec<String>> {
    let mut defaults = header::HeaderMap::new();
    defaults.insert("x-app", header::HeaderValue::from_static("program"));
    defaults.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    let client = Client::builder()
        .user_agent("program/1.0")
        .default_headers(defaults)
        .cookie_store(true)
        .gzip(true)
        .timeout(Duration::from_secs(10))
        .connect_timeout(Duration::from_secs(5))
        .pool_max_idle_per_host(4)
        .tcp_nodelay(true)
        .no_proxy()
        .build()?;
    let mut log = Vec::new();

    log.push(seen(client.get(format!("{base}/get")).send().await?).await?);
    log.push(seen(client.get(format!("{base}/query")).query(&[("a", "1"), ("b", "two words")]).send().await?).await?);
    log.push(seen(client.post(format!("{base}/json")).json(&HashMap::from([("name", "value")])).send().await?).await?);
    log.push(seen(client.post(format!("{base}/form")).form(&[("user", "me"), ("pass", "a&b")]).send().await?).await?);
    log.push(seen(client.put(format!("{base}/bytes")).body(vec![0_u8, 159, 146, 150]).send().await?).await?);
    log.push(seen(client.patch(format!("{base}/text")).body("plain text").send().await?).await?);
    log.push(seen(client.delete(format!("{base}/delete")).basic_auth("user", Some("pass")).send().await?).await?);
    log.push(seen(client.get(format!("{base}/bearer")).bearer_auth("token").header("x-app", "other").send().await?).await?);
    log.push(seen(client.request(Method::OPTIONS, format!("{base}/options")).send().await?).await?);

    let head = client.head(format!("{base}/head")).send().await?;
    log.push(format!("{} {:?} {:?}", head.status(), head.content_length(), head.headers().get("x-answer")));

    let part = multipart::Part::bytes(b"file contents".as_slice()).file_name("a.txt").mime_str("text/plain")?;
    let form = multipart::Form::new().text("field", "value").part("file", part);
    log.push(without_boundary(&seen(client.post(format!("{base}/multipart")).multipart(form).send().await?).await?));

    let chunks = ["one ", "two ", "three"].map(Ok::<_, std::io::Error>);
    let body = Body::wrap_stream(futures_util::stream::iter(chunks));
    log.push(seen(client.post(format!("{base}/stream")).body(body).send().await?).await?);

    let response = client.get(format!("{base}/gzip")).send().await?;
    log.push(format!("{:?} {}", response.headers().get(header::CONTENT_ENCODING).cloned(), response.text().await?));

    let mut stream = client.get(format!("{base}/large")).send().await?.bytes_stream();
    let mut length = 0;
    while let Some(chunk) = stream.next().await {
        length += chunk?.len();
    }
    log.push(format!("{length} bytes"));

    let mut response = client.get(format!("{base}/large")).send().await?;
    let mut length = 0;
    while let Some(chunk) = response.chunk().await? {
        length += chunk.len();
    }
    log.push(format!("{length} bytes"));

    client.get(format!("{base}/cookie")).send().await?.error_for_status()?;
    log.push(seen(client.get(format!("{base}/with-cookie")).send().await?).await?);

    let request = client.post(format!("{base}/built")).version(Version::HTTP_11).body("built").build()?;
    log.push(format!("{} {} {:?}", request.method(), request.url().path(), request.body().and_then(Body::as_bytes)));
    log.push(seen(client.execute(request).await?).await?);

    let twice = client.post(format!("{base}/twice")).body("again");
    let (first, second) = (twice.try_clone().expect("a body in memory"), twice);
    log.push(seen(first.send().await?).await?);
    let (client, request) = second.build_split();
    log.push(seen(client.execute(request?).await?).await?);
    let request = client.get(format!("{base}/parts")).build()?;
    log.push(seen(RequestBuilder::from_parts(client.clone(), request).header("x-late", "1").send().await?).await?);

    let missing = client.get(format!("{base}/missing")).send().await?;
    log.push(format!("{}", missing.status()));
    let error = client.get(format!("{base}/missing")).send().await?.error_for_status().expect_err("it is missing");
    log.push(format!("{} {:?} {:?}", error.is_status(), error.status(), error.url().map(Url::path)));
    let json: HashMap<String, String> = client.get(format!("{base}/answer.json")).send().await?.json().await?;
    log.push(format!("{json:?}"));
    let slow = client.get(format!("{base}/slow")).timeout(Duration::from_millis(100)).send().await;
    log.push(format!("{:?}", slow.expect_err("it is slow").is_timeout()));
    Ok(log)
}

async fn seen(response: Response) -> Result<String> {
    let status = response.error_for_status_ref().map(Response::status);
    let head = format!("{:?} {} {:?}", status.ok(), response.url().path(), response.version());
    Ok(format!("{head}: {}", response.text().await?))
}

/// Each form has its own.
fn without_boundary(line: &str) -> String {
    let boundary = line.split("boundary=").nth(1).and_then(|rest| rest.split(['"', '\\']).next()).unwrap_or("?");
    line.replace(boundary, "BOUNDARY")
}
