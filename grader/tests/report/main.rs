//! The page about a run.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod sample;

use airlock_grader::journal::{Decision, Event, Outcome};
use airlock_grader::report::{GateWords, render};
use airlock_runtime::gpu::{Counters, DeviceReport, GpuReport};
use sample::{HOSTILE, Run};

fn page(run: &Run) -> String {
    render(&run.input())
}

/// How often a text occurs.
fn times(page: &str, text: &str) -> usize {
    page.matches(text).count()
}

#[test]
fn the_same_run_is_the_same_page() {
    assert_eq!(page(&sample::soup()), page(&sample::soup()));
}

#[test]
fn a_page_loads_nothing_and_runs_nothing() {
    for run in [sample::soup(), sample::hostile(), Run::new(1, 1)] {
        let page = page(&run);
        let head = page.find("<title>").unwrap();
        assert!(page[..head].contains("content=\"default-src 'none'; style-src 'unsafe-inline'; "));
        for bad in
            ["<script", "<img", "<link", "<iframe", "<svg onload", "url(", "@import", "http:", "https:"]
        {
            assert_eq!(times(&page, bad), 0, "{bad}");
        }
        assert_eq!(times(&page, "<style>"), 1);
        assert_eq!(times(&page, "</style>"), 1);
        // Links lead within the page.
        assert_eq!(times(&page, " href="), times(&page, " href=\"#"));
    }
}

#[test]
fn hostile_text_is_text_everywhere() {
    let (good, bad) = (page(&sample::soup()), page(&sample::hostile()));
    assert!(!bad.contains(['\u{202e}', '\u{2066}']));
    for text in HOSTILE {
        assert!(!bad.contains(text), "{text}");
    }
    for shown in
        ["&lt;script&gt;document.title=", "&quot;onload=&quot;", "\\u{202e}gpj.exe\\u{2066}", "&amp;lt;b"]
    {
        assert!(times(&bad, shown) > 5, "{shown}");
    }
    // No element came in with it, but for the list items, cells and warnings that hold it.
    for tag in ["script", "img", "style", "section", "h1", "details", "svg", "form", "a"] {
        assert_eq!(times(&bad, &format!("<{tag}>")), times(&good, &format!("<{tag}>")), "{tag}");
        assert_eq!(times(&bad, &format!("<{tag} ")), times(&good, &format!("<{tag} ")), "{tag}");
        assert_eq!(times(&bad, &format!("</{tag}>")), times(&good, &format!("</{tag}>")), "{tag}");
    }
}

#[test]
fn what_a_phase_had_of_gpus_is_told() {
    assert_eq!(times(&page(&sample::soup()), "<caption>GPUs</caption>"), 0);
    let before = Counters {
        memory_used: 0,
        ecc_corrected: Some(4),
        ecc_uncorrected: Some(0),
        sm_clock: Some(345),
        sm_clock_max: None,
        memory_clock: None,
        temperature: None,
        power_limit: None,
    };
    let device = DeviceReport {
        uuid: "GPU-7f3a".into(),
        slice_of: None,
        name: HOSTILE[0].into(),
        pci: "0000:19:00.0".into(),
        after: Some(Counters { ecc_uncorrected: Some(2), ..before.clone() }),
        before,
        memory_peak: Some(20 << 30),
        utilisation: Some(61.4),
        energy: Some(70_500),
        xids: vec![31, 13],
    };
    let lost = DeviceReport { uuid: "GPU-lost".into(), after: None, ..device.clone() };
    let mut run = sample::soup();
    run.phases[0].end.gpus = Some(GpuReport {
        driver: "550.54.15".into(),
        cuda: "12.4".into(),
        devices: vec![device, lost],
        left: vec!["GPU-lost is lost: it does not answer any more".into()],
        exceeded: Some("GPU-7f3a had 20480 MiB more in use than before".into()),
        reset: Some(false),
        unwatched: false,
    });
    let page = page(&run);
    assert_eq!(times(&page, "<caption>GPUs</caption>"), 1);
    for text in [
        "GPU-7f3a</bdi>",
        "20.0 GiB",
        ">61%<",
        ">70 J<",
        ">345 → 345<",
        ">4 → 4<",
        ">0 → 2<",
        ">0 → ?<",
        ">31, 13<",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["550.54.15", "20480 MiB more in use", "it does not answer any more", "GPUs reset"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains(HOSTILE[0]));
}

#[test]
fn an_agents_reason_is_quoted() {
    let page = page(&sample::without_candidate("no <b>idea</b>\n\u{202e}"));
    assert!(page.contains("<q><bdi>no &lt;b&gt;idea&lt;/b&gt;\\n\\u{202e}</bdi></q>"));
    assert!(page.contains(">No candidate</strong>"));
}

#[test]
fn a_finished_run_is_told_whole() {
    let page = page(&sample::soup());
    for text in [
        ">Scored</strong>",
        "<strong>503<small> / 600</small></strong>",
        "submitted after 6 min 52 s of 10 min, 7 validations",
        "600 items planned, higher is better",
        ">soup-400<",
        "not valid",
        "best: the result",
        "503 ok",
        "4 missing",
        "97 of them not ok throughout",
        "phases/9-score/trajectories",
        "one host uid for the whole sandbox",
        "opening the host&#39;s / was possible before the restriction",
        "airlock task verify RUN --key key.pem",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let head = sample::soup().receipt.unwrap().journal;
    assert!(page.contains(&head.digest.hex()));
}

/// Law 6: what is not there is shown, and counts.
#[test]
fn failed_items_come_first_and_missing_ones_are_there() {
    let page = page(&sample::soup());
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    let order = ["row-596", "row-595", "row-593", "row-590", "row-503", "row-0"];
    let places = order.map(|id| place(&format!("<td><bdi>{id}</bdi></td>")));
    assert!(places.is_sorted(), "{places:?}");
    let row = &page[places[0]..places[0] + 120];
    assert!(row.contains("<span class=\"fate missing\">missing</span></td><td class=\"n\">0</td>"), "{row}");
}

#[test]
fn an_unfinished_run_says_so() {
    let mut run = Run::new(3, 1);
    assert!(page(&run).contains("The run was not over"));
    let whole = sample::soup();
    for length in 0..whole.records.len() {
        run.records = whole.records[..length].to_vec();
        assert!(page(&run).contains("<strong class=\"fair\">Unfinished</strong>"), "{length}");
    }
    run.records = whole.records.clone();
    assert!(page(&run).contains("There is no receipt"));
    run.records.pop();
    run.at(500.0, Event::Interrupted { cause: "the scorer <b>died</b>".into() });
    let page = page(&run);
    assert!(page.contains(">Interrupted</strong>") && page.contains("the scorer &lt;b&gt;died&lt;/b&gt;"));
}

#[test]
fn every_end_of_research_has_its_words() {
    let capture = |early| Event::DeadlineCapture { candidate: Some(sample::digest("left")), early };
    for (events, outcome, word, words) in [
        (
            vec![capture(false)],
            Outcome::DeadlinePassed,
            "Deadline passed",
            "out of time after 9 min 20 s of 10 min",
        ),
        (
            vec![capture(true)],
            Outcome::NothingSubmitted,
            "Nothing submitted",
            "ended without a word after 9 min 20 s",
        ),
        (
            vec![],
            Outcome::NothingSubmitted,
            "Nothing submitted",
            "ended without a word after 9 min 20 s of 10 min",
        ),
    ] {
        let mut run = sample::without_candidate("");
        let ended = run.records[3].event.clone();
        assert!(matches!(ended, Event::PhaseEnded { .. }));
        run.records.truncate(2);
        run.at(560.4, ended);
        let captured = events.len();
        events.into_iter().for_each(|event| run.at(570.4, event));
        run.at(571.0, Event::Closed { outcome });
        let page = page(&run);
        assert!(page.contains(word) && page.contains(words), "{word}");
        assert_eq!(times(&page, "as evidence, and not submitted"), captured);
    }
}

#[test]
fn a_choice_that_cannot_be_scored_is_explained() {
    let mut run = sample::without_candidate("");
    run.records.truncate(2);
    run.at(90.0, Event::Chosen { name: "solution".into() });
    run.at(91.0, Event::ChoiceRefused { cause: "solution/<a> is a FIFO".into() });
    run.at(92.0, Event::Closed { outcome: Outcome::GateFailed });
    let page = page(&run);
    assert!(page.contains("The choice cannot be scored: <bdi>solution/&lt;a&gt; is a FIFO</bdi>"));
    assert!(page.contains(">Refused by a gate</strong>") && page.contains("submitted after 1 min 29 s"));
}

#[test]
fn what_a_gate_refused_is_told_in_its_words() {
    let mut run = sample::soup();
    let (refused, other) = (sample::digest("refused"), sample::digest("other"));
    let event =
        |report| Event::GateResult { gate: "submission".into(), candidate: report, passed: false, report };
    run.at(430.0, event(refused));
    run.at(430.0, event(other));
    let words = (0..25).map(|line| format!("soup<{line}>.py: not editable [editable]")).collect();
    run.gates.push(GateWords { report: refused, words });
    let page = page(&run);
    assert_eq!(times(&page, "<bdi>soup&lt;0&gt;.py: not editable [editable]</bdi>"), 1);
    assert!(
        page.contains("soup&lt;19&gt;") && !page.contains("soup&lt;20&gt;") && page.contains("and 5 more")
    );
}

/// It has no end of its own, and none that anyone should look into.
#[test]
fn the_end_of_the_grader_process_is_no_fault() {
    let mut run = sample::soup();
    let explore = run.phases.iter().position(|phase| phase.name == "explore").unwrap();
    run.phases[explore].end.signal = Some(9);
    assert!(page(&run).contains("<span class=\"fair\">signal 9</span>"));
    run.phases[explore].name = "grader".into();
    assert!(page(&run).contains("<span class=\"good\">by its supervisor</span>"));
}

#[test]
fn what_is_out_of_the_ordinary_is_said_at_the_top() {
    let mut run = sample::soup();
    run.overrides = vec!["explore has 5m, not 10m".into()];
    let decided = Event::Decided { decision: Decision::Again };
    let closed = run.records.pop().unwrap();
    run.at(427.2, decided);
    run.records.push(closed);
    let mut input = run.input();
    input.task.in_process = true;
    let page = render(&input);
    let top = &page[..page.find("<nav").unwrap()];
    for text in
        ["explore has 5m, not 10m", "done once more, 1 time", "Graded in-process", "Weaker than the task"]
    {
        assert!(top.contains(text), "{text}");
    }
    let page = render(&sample::without_candidate("").input());
    assert_eq!(times(&page, "class=\"warning\""), 0);
}

/// The boot-time clock begins anew with each boot.
#[test]
fn another_boots_clock_is_not_drawn() {
    let mut run = sample::soup();
    let drawn = times(&page(&run), "<circle");
    for record in &mut run.records {
        if matches!(record.event, Event::ValidationRequested { ticket: 7, .. }) {
            record.boot_id = "another".into();
        }
    }
    let page = page(&run);
    assert_eq!(times(&page, "<circle"), drawn - 1);
    assert!(page.contains("after a reboot of the host have no place on this clock"));
}

#[test]
fn a_validation_over_some_items_is_never_the_best() {
    let mut run = sample::soup();
    let best = |run: &Run| {
        let page = page(run);
        let from = page.find("<g class=\"mark best\"><title>").unwrap();
        page[from + "<g class=\"mark best\"><title>".len()..].split(':').next().unwrap().to_owned()
    };
    assert_eq!(best(&run), "Validation 6");
    for record in &mut run.records {
        if let Event::ValidationRequested { ticket: 6, items, .. } = &mut record.event {
            *items = Some(vec!["row-0".into()]);
        }
    }
    assert_eq!(best(&run), "Validation 7");
    assert!(page(&run).contains("only 1 item."));
}

#[test]
fn long_lists_are_cut_and_say_so() {
    let mut run = sample::large(10_000, 1);
    let page_of_one = page(&run);
    assert!(page_of_one.len() < 1 << 20, "{}", page_of_one.len());
    assert!(page_of_one.contains("9000 further items, 9000 of them ok: in phases/0-*/verdict.json"));
    assert!(page_of_one.contains("10 missing") && page_of_one.contains("10000 items planned"));

    for index in 0..20_000_u64 {
        let cause = "x".repeat(10_000);
        run.at(
            5.0,
            Event::ValidationRequested { ticket: index, candidate: sample::digest("c"), items: None },
        );
        run.at(5.0, Event::ValidationFailed { ticket: index, phase: None, cause });
    }
    let phase = run.phases[0].clone();
    run.phases = (0..5000)
        .map(|number| airlock_grader::report::PhaseReport { phase: number, ..phase.clone() })
        .collect();
    let page = page(&run);
    assert!(page.len() < 3 << 20, "{}", page.len());
    for text in
        ["19500 further validations", "39008 lines between", "4800 further phases", "The evidence of 4940"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn attempts_are_listed_where_there_are_several() {
    let page = page(&sample::large(60, 4));
    assert!(
        page.contains("<td class=\"n\">0 of 4</td><td>4 <span class=\"fate missing\">missing</span></td>")
    );
    assert!(page.contains("60 items planned × 4 attempts") && page.contains("240 attempts planned"));
    let large = self::page(&sample::large(60, 1000));
    assert!(large.contains("; 984 more"), "attempts are cut");
}

/// WCAG 2.1, 1.4.3: text stands out from its ground in both schemes.
#[test]
fn text_has_contrast_in_light_and_dark() {
    let page = page(&Run::new(1, 1));
    let css = &page[page.find("<style>").unwrap()..page.find("</style>").unwrap()];
    let (light, dark) = css.split_once("prefers-color-scheme: dark").unwrap();
    for (scheme, css) in [("light", light), ("dark", dark)] {
        let luminance = |name: &str| {
            let at = css.find(&format!("--{name}: #")).unwrap_or_else(|| panic!("{name}")) + name.len() + 5;
            let channel = |index: usize| {
                let value = u8::from_str_radix(&css[at + 2 * index..at + 2 * index + 2], 16).unwrap();
                let value = f64::from(value) / 255.0;
                if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
        };
        for ground in ["paper", "tint"] {
            for text in ["ink", "soft", "accent", "good", "fair", "bad"] {
                let (a, b) = (luminance(ground), luminance(text));
                let ratio = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(ratio >= 4.5, "{scheme}: {text} on {ground}: {ratio:.2}");
            }
        }
    }
}
