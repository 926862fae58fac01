//! What does `--help` say beside the flags?

pub(crate) const EXAMPLES: &str = "\
Examples:
  throttle batch requests.jsonl --rate 50/s --dry-run
  throttle batch requests.jsonl -o answers.jsonl --rate 50/s
  throttle batch requests.jsonl -o answers.jsonl --base-url https://api.example.com \\
      --header 'Authorization: Bearer env:KEY' --rate 500/min --rate '200_000 tokens/min'
  make-requests | throttle batch - -o answers.jsonl --skip-bad";

pub(crate) const FORMS: &str = "\
The input has a request in each line, in JSON:
  custom_id  what its answer is known by; line-N unless said, by the number of its line
  method     GET without a body and POST with one, unless said
  url        whole, or what follows --base-url
  headers    names with texts
  body       an object or a list (sent as JSON, as it is written), or a text
  cost       what it takes of other units than requests, as in {\"tokens\": 120}
  priority   high, normal or low
  flow       for whom it is: those of the same priority take turns
A file is checked whole before anything is sent, standard input as it comes.

A limit is `50/s`, `1000/h` or `40 per 2s` (at most so many in any such time), of requests or of a
unit that lines have costs in (`200_000 tokens/min`), or a bucket (`10/s burst 20`); after it any of
`paced`, `at most 5`, `headroom 10%`, `counted from answer`. A time is `500ms`, `30s`, `5min` or `2h`.

The output has a line for each request: custom_id; request, a few bits of a hash of what
was asked; response, with status_code, headers and body (JSON, else text, else base64 and
body_encoding), or error, with code and message; attempts, waited_ms and took_ms.

A later run goes on from the output: by the same command, what is answered is not sent
again. What may end in another way (no answer, 408, 425, 429, 5xx) is done again, other
failures only by --retry-failed; meanwhile old records are in OUTPUT.before, so that each is
there until it is replaced. A request is the same if its custom_id, method, url and body are,
whatever --base-url and headers; each custom_id of the output has to be in the input. With
--rate, what was sent lately is in OUTPUT.limits,
so that a later run begins with what is left of its limits.

Ctrl-C lets what is in flight end; a second one stops at once. Ends with 0 if all answers
are 2xx, 1 if some are not, 2 if the command or the input is wrong, 130 if interrupted.

";
