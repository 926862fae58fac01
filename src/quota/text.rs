//! How a quota is written: `100/min`, `200_000 tokens/min`, `40 per 2s paced`, `10/s burst 20 headroom 10%`.

use std::fmt;
use std::time::Duration;

use super::form::{Anchor, Form, Rate};
use crate::cost::Unit;

pub(super) const GRAMMAR: &str = "`unlimited`, or a count and a period, as in `50/s`, `100/min`, `40 per 2s`, \
     `200_000 tokens/min`, and after it any of `burst 20`, `paced`, `at most 5`, `headroom 10%`, `jitter 50ms`, \
     `counted from answer`, `counted from end`, `counted from send + 50ms`";

/// The units of time that are read, the first spelling of each being the one that is printed.
const TIMES: [(&[&str], Duration); 7] = [
    (&["d", "day", "days"], Duration::from_secs(86_400)),
    (&["h", "hr", "hour", "hours"], Duration::from_secs(3_600)),
    (&["min", "m", "minute", "minutes"], Duration::from_secs(60)),
    (&["s", "sec", "second", "seconds"], Duration::from_secs(1)),
    (&["ms", "millisecond", "milliseconds"], Duration::from_millis(1)),
    (&["us", "µs", "microsecond", "microseconds"], Duration::from_micros(1)),
    (&["ns", "nanosecond", "nanoseconds"], Duration::from_nanos(1)),
];

const MODIFIERS: [&str; 6] = ["burst", "paced", "at", "headroom", "jitter", "counted"];

/// Whether a unit can be written with this name: a word that is not one of the grammar's own.
pub(super) fn is_unit(name: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let is_word = name.starts_with(char::is_alphabetic) && name.chars().all(letter);
    is_word && name != "per" && !MODIFIERS.contains(&name)
}

pub(super) fn read(text: &str) -> Option<Form> {
    let words: Vec<_> = text.split_whitespace().collect();
    let modified = words.iter().position(|word| MODIFIERS.contains(word)).unwrap_or(words.len());
    let mut form = read_rate(&words[..modified].join(" "))?;
    let mut rest = &words[modified..];
    while !rest.is_empty() {
        rest = read_modifier(&mut form, rest)?;
    }
    Some(form)
}

/// `50/s`, `40 per 2s`, `200_000 tokens/min`, `0.5/s`, `unlimited`, `unlimited tokens`.
fn read_rate(text: &str) -> Option<Form> {
    if let Some(unit) = text.strip_prefix("unlimited") {
        return Some(Form::window(None, read_unit(unit)?));
    }
    let (amount, period) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let amount = amount.trim();
    let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '_' && c != '.').unwrap_or(amount.len());
    let (count, unit) = amount.split_at(digits);
    Some(Form::window(Some(fraction(count, duration(period.trim())?)?), read_unit(unit)?))
}

/// Nothing, or a unit's name after a space.
fn read_unit(text: &str) -> Option<Unit> {
    match text.strip_prefix(' ') {
        Some(name) => is_unit(name).then(|| Unit::from(name)),
        None => text.is_empty().then_some(Unit::REQUESTS),
    }
}

/// Reads one modifier, each of which may stand once, and answers what comes after it.
fn read_modifier<'a, 'b>(form: &mut Form, words: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let (read, rest) = match words {
        ["burst", burst, rest @ ..] => (set(&mut form.burst, number(burst)?), rest),
        ["paced", rest @ ..] => (set(&mut form.at_most, 1), rest),
        ["at", "most", most, rest @ ..] => (set(&mut form.at_most, number(most)?), rest),
        ["headroom", percent, rest @ ..] if form.headroom_percent == 0 => {
            form.headroom_percent = percent.strip_suffix('%')?.parse().ok().filter(|percent| *percent > 0)?;
            (Some(()), rest)
        }
        ["jitter", jitter, rest @ ..] if form.jitter.is_zero() => {
            form.jitter = duration(jitter).filter(|jitter| !jitter.is_zero())?;
            (Some(()), rest)
        }
        ["counted", "from", rest @ ..] if form.anchor == Anchor::AnswerCapped => {
            let (anchor, rest) = read_anchor(rest)?;
            form.anchor = anchor;
            (Some(()), rest)
        }
        _ => (None, words),
    };
    read.map(|()| rest)
}

fn read_anchor<'a, 'b>(words: &'a [&'b str]) -> Option<(Anchor, &'a [&'b str])> {
    match words {
        ["answer", rest @ ..] => Some((Anchor::Answer, rest)),
        ["end", rest @ ..] => Some((Anchor::End, rest)),
        ["send", "+", pad, rest @ ..] => Some((Anchor::Send(duration(pad)?), rest)),
        ["send", rest @ ..] => Some((Anchor::Send(Duration::ZERO), rest)),
        _ => None,
    }
}

/// Sets what was not set before.
fn set(field: &mut Option<u64>, value: u64) -> Option<()> {
    let unset = field.is_none();
    *field = Some(value);
    unset.then_some(())
}

/// A whole number, its digits in groups if one likes: `200_000`.
fn number(text: &str) -> Option<u64> {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let is_number = digit(text.chars().next()) && digit(text.chars().next_back());
    if is_number { text.replace('_', "").parse().ok() } else { None }
}

/// So many, or a fraction of one, in a period: the smallest whole number in a longer one.
fn fraction(count: &str, period: Duration) -> Option<Rate> {
    let Some((whole, decimals)) = count.split_once('.') else {
        return Some(Rate { count: number(count)?, period });
    };
    let digits = u32::try_from(decimals.len()).ok()?;
    if digits > 9 || !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let parts = 10_u64.pow(digits);
    let count = number(whole)?.checked_mul(parts)?.checked_add(decimals.parse().ok()?)?;
    let common = common_divisor(count, parts);
    let longer = u32::try_from(parts / common).ok()?;
    Some(Rate { count: count / common, period: period.checked_mul(longer)? })
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { common_divisor(b, a % b) }
}

/// `2s`, `500 ms`, `minute`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (count, name) = text.split_at(digits);
    let count = if count.is_empty() { 1 } else { number(count)? };
    let unit = TIMES.iter().find(|(names, _)| names.contains(&name.trim()))?.1;
    let nanos = unit.as_nanos().checked_mul(u128::from(count))?;
    let subsecond = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(u64::try_from(nanos / 1_000_000_000).ok()?, subsecond))
}

pub(super) fn print(form: &Form, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let unit = if form.unit == Unit::REQUESTS { String::new() } else { format!(" {}", form.unit) };
    match form.rate {
        None => write!(f, "unlimited{unit}")?,
        Some(Rate { count, period }) => match times(period) {
            (1, name) => write!(f, "{count}{unit}/{name}")?,
            (times, name) => write!(f, "{count}{unit} per {times}{name}")?,
        },
    }
    print_modifiers(form, f)
}

fn print_modifiers(form: &Form, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let time = |time| {
        let (count, name) = times(time);
        format!("{count}{name}")
    };
    form.burst.map_or(Ok(()), |burst| write!(f, " burst {burst}"))?;
    match form.at_most {
        None => {}
        Some(1) => f.write_str(" paced")?,
        Some(most) => write!(f, " at most {most}")?,
    }
    if form.headroom_percent > 0 {
        write!(f, " headroom {}%", form.headroom_percent)?;
    }
    if !form.jitter.is_zero() {
        write!(f, " jitter {}", time(form.jitter))?;
    }
    match form.anchor {
        Anchor::AnswerCapped => Ok(()),
        Anchor::Answer => f.write_str(" counted from answer"),
        Anchor::End => f.write_str(" counted from end"),
        Anchor::Send(Duration::ZERO) => f.write_str(" counted from send"),
        Anchor::Send(pad) => write!(f, " counted from send + {}", time(pad)),
    }
}

/// A period as a whole number of the largest unit of time that makes it one.
fn times(period: Duration) -> (u128, &'static str) {
    let nanos = period.as_nanos();
    let whole = |(_, unit): &&(_, Duration)| *unit <= period && nanos.is_multiple_of(unit.as_nanos());
    let (names, unit) = TIMES.iter().find(whole).unwrap_or(&TIMES[3]);
    (nanos / unit.as_nanos(), names[0])
}
