use proptest::prelude::*;

use super::*;

/// A task, its ladder, and scores with their places.
type Task = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// The ladders of AI4AI-Bench (arXiv 2608.20318, table 2), worked out by hand from the formulas of section 2.5.
const TASKS: [Task; 10] = [
    (
        "openr1_code_livecodebench",
        "phi=identity,uninformative=0,baseline=0.127,optimum=1",
        &[
            ("0.0635", "0.050000"),
            ("0.5635", "0.550000"),
            ("1.5", "1.000000"),
            ("-0.5", "0.000000"),
        ],
    ),
    (
        "ragen_sokoban_grpo",
        "phi=identity,uninformative=0,baseline=0.170,optimum=1",
        &[("0.085", "0.050000"), ("0.253", "0.190000")],
    ),
    (
        "opd_math_1p5b",
        "phi=identity,uninformative=0,baseline=0.436,optimum=1",
        &[("0.109", "0.025000"), ("0.577", "0.325000")],
    ),
    (
        "ultrafeedback_bt_rm_rewardbench",
        "phi=identity,uninformative=50,baseline=74.9,optimum=100",
        &[("62.45", "0.050000"), ("87.45", "0.550000"), ("49", "0.000000")],
    ),
    (
        "dpo_preference_alignment",
        "phi=identity,uninformative=0,baseline=0.424,optimum=1",
        &[("0.53", "0.265625"), ("0.712", "0.550000")],
    ),
    (
        "ddpo_sd15_aesthetic",
        "phi=identity,uninformative=-12.76,baseline=5.84,optimum=23.23",
        &[
            ("-12.76", "0.000000"),
            ("-3.46", "0.050000"),
            ("0", "0.068602"),
            ("14.535", "0.550000"),
            ("24", "1.000000"),
        ],
    ),
    (
        "openunlearning_tofu_npo_llama3p2_1b",
        "phi=identity,uninformative=0,baseline=0.887,optimum=2.08",
        &[("0.4435", "0.050000"), ("1.4835", "0.550000")],
    ),
    (
        "digress_qm9_graph_diffusion",
        "phi=negate,uninformative=inf,baseline=65.8,optimum=0,below=ratio",
        &[
            ("131.6", "0.050000"),
            ("658", "0.010000"),
            ("1e300", "0.000000"),
            ("32.9", "0.550000"),
            ("-1", "1.000000"),
        ],
    ),
    (
        "model_soup_clip_imagenetv2",
        "phi=identity,uninformative=0,baseline=0.686,optimum=1",
        &[("0.343", "0.050000"), ("0.843", "0.550000")],
    ),
    // Above: 0.1 + 0.9·(ln 53.4 − ln x)/ln 53.4; at x = 7.3075, its square root but for rounding, 0.55.
    (
        "owl_wanda_opt6p7b_70pct",
        "phi=neg-log,uninformative=inf,baseline=53.4,optimum=1,below=ratio",
        &[
            ("106.8", "0.050000"),
            ("534", "0.010000"),
            ("7.307530362578044", "0.550000"),
            ("10", "0.479028"),
            ("0.5", "1.000000"),
        ],
    ),
];

fn place(ladder: &Ladder, value: &str) -> Result<String, LadderError> {
    let score = Score::from(value.parse::<Decimal>().unwrap());
    ladder.sigma(Some(score)).map(|sigma| sigma.to_string())
}

fn ladder(text: &str) -> Ladder {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn point(text: &str, key: &str) -> String {
    let value = text
        .split(',')
        .find_map(|pair| pair.strip_prefix(&format!("{key}=")));
    value.unwrap().to_owned()
}

#[test]
fn the_ten_tasks_have_their_pivots() {
    for (task, text, _) in TASKS {
        let ladder = ladder(text);
        assert_eq!(
            place(&ladder, &point(text, "baseline")).unwrap(),
            "0.100000",
            "{task}"
        );
        assert_eq!(
            place(&ladder, &point(text, "optimum")).unwrap(),
            "1.000000",
            "{task}"
        );
        let uninformative = point(text, "uninformative");
        let worst = if uninformative == "inf" {
            "1e300"
        } else {
            &uninformative
        };
        assert_eq!(place(&ladder, worst).unwrap(), "0.000000", "{task}");
        assert_eq!(ladder.sigma(None).unwrap(), Sigma::ZERO, "{task}");
    }
}

#[test]
fn the_ten_tasks_place_scores() {
    for (task, text, places) in TASKS {
        for (value, sigma) in places {
            assert_eq!(&place(&ladder(text), value).unwrap(), sigma, "{task} at {value}");
        }
    }
}

#[test]
fn counts_are_placed_as_the_fraction_that_they_are() {
    let sokoban = ladder(TASKS[1].1);
    let score = Score {
        sum: 87u64.into(),
        n: 512.try_into().unwrap(),
    };
    // 87/512 is 0.169921875, a little below the rounded baseline.
    assert_eq!(sokoban.sigma(Some(score)).unwrap().to_string(), "0.099954");
}

#[test]
fn finite_losses_fall_linearly() {
    let loss = ladder("phi=negate,uninformative=10,baseline=4,optimum=1");
    for (value, sigma) in [
        ("10", "0.000000"),
        ("7", "0.050000"),
        ("4", "0.100000"),
        ("2.5", "0.550000"),
        ("11", "0.000000"),
    ] {
        assert_eq!(place(&loss, value).unwrap(), sigma, "{value}");
    }
    // Halfway in the logarithm: √(100·10) and √(10·1).
    let perplexity = ladder("optimum=1,below=linear,baseline=10,uninformative=100,phi=neg-log");
    assert_eq!(place(&perplexity, "31.622776601683793").unwrap(), "0.050000");
    assert_eq!(place(&perplexity, "3.1622776601683795").unwrap(), "0.550000");
    assert_eq!(place(&perplexity, "1000").unwrap(), "0.000000");
}

#[test]
fn a_ratio_is_what_an_infinite_point_means() {
    let named = ladder("phi=negate,uninformative=inf,baseline=65.8,optimum=0,below=ratio");
    assert_eq!(
        ladder("phi=negate,uninformative=inf,baseline=65.8,optimum=0"),
        named
    );
}

#[test]
fn contradictions_are_refused() {
    for (text, message) in [
        (
            "phi=identity,uninformative=0.2,baseline=0.2,optimum=1",
            "baseline (0.2) is not better than the uninformative",
        ),
        (
            "phi=identity,uninformative=0.3,baseline=0.2,optimum=1",
            "baseline (0.2) is not better",
        ),
        (
            "phi=identity,uninformative=0,baseline=0.2,optimum=0.2",
            "optimum (0.2) is not better than the baseline",
        ),
        (
            "phi=identity,uninformative=0,baseline=0.2,optimum=0.20000000000000000001",
            "optimum",
        ),
        (
            "phi=negate,uninformative=0,baseline=0.2,optimum=1",
            "is not better",
        ),
        (
            "phi=negate,uninformative=9,baseline=4,optimum=5",
            "optimum (5) is not better",
        ),
        (
            "phi=negate,uninformative=inf,baseline=4,optimum=5",
            "optimum (5) is not better",
        ),
        (
            "phi=neg-log,uninformative=inf,baseline=4,optimum=0",
            "`optimum` is 0, which has no logarithm",
        ),
        (
            "phi=neg-log,uninformative=inf,baseline=-4,optimum=1",
            "`baseline` is -4, which has no logarithm",
        ),
        (
            "phi=neg-log,uninformative=0,baseline=4,optimum=1",
            "`uninformative` is 0, which has no logarithm",
        ),
        (
            "phi=neg-log,uninformative=-inf,baseline=4,optimum=1",
            "better than any score",
        ),
        (
            "phi=negate,uninformative=-inf,baseline=4,optimum=1",
            "better than any score",
        ),
        (
            "phi=identity,uninformative=inf,baseline=0,optimum=1",
            "better than any score",
        ),
        (
            "phi=identity,uninformative=-inf,baseline=0,optimum=1",
            "is for losses",
        ),
        (
            "phi=negate,uninformative=inf,baseline=4,optimum=1,below=linear",
            "write below=ratio",
        ),
        (
            "phi=negate,uninformative=9,baseline=4,optimum=1,below=ratio",
            "infinite uninformative point, not 9",
        ),
        (
            "phi=negate,uninformative=inf,baseline=0,optimum=-1",
            "baseline above 0",
        ),
        (
            "phi=identity,uninformative=-1e308,baseline=1e308,optimum=1.5e308",
            "too far apart",
        ),
    ] {
        let error = text.parse::<Ladder>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn what_is_no_ladder_is_refused() {
    let full = "phi=identity,uninformative=0,baseline=0.2,optimum=1";
    for (text, message) in [
        (String::new(), "`` is not of the form"),
        (format!("{full},"), "`` is not of the form"),
        (full.replace(",optimum=1", ""), "`optimum` is missing"),
        (full.replace("phi=identity,", ""), "`phi` is missing"),
        (format!("{full},baseline=0.3"), "`baseline` is given twice"),
        (format!("{full},floor=3"), "no `floor`"),
        (full.replace("identity", "log"), "`log` is not a value of `phi`"),
        (format!("{full},below=cubic"), "`cubic` is not a value of `below`"),
        (
            full.replace("0.2", "inf"),
            "`baseline` is `inf`, not a finite decimal",
        ),
        (full.replace("=1", "=nan"), "`optimum` is `nan`"),
        (
            full.replace("uninformative=0", "uninformative=Infinity"),
            "`uninformative` is `Infinity`",
        ),
        (full.replace("0.2", " 0.2"), "unexpected ` `"),
        (full.replace(",b", ", b"), "no ` baseline`"),
    ] {
        let error = text.parse::<Ladder>().unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn a_perplexity_of_zero_has_no_place() {
    let owl = ladder(TASKS[9].1);
    for value in ["0", "-3"] {
        assert!(
            matches!(
                place(&owl, value),
                Err(LadderError::NoLogarithm { point: "value", .. })
            ),
            "{value}"
        );
    }
}

#[test]
fn a_ladder_is_checked_when_it_is_read() {
    for (_, text, _) in TASKS {
        let mut json = serde_json::to_value(ladder(text)).unwrap();
        assert_eq!(
            serde_json::from_value::<Ladder>(json.clone()).unwrap(),
            ladder(text)
        );
        json["optimum"] = json["baseline"].clone();
        assert!(serde_json::from_value::<Ladder>(json).is_err());
    }
}

proptest! {
    #[test]
    fn better_is_never_lower(a in 1..2_000_000u64, b in 1..2_000_000u64, task in 0..TASKS.len()) {
        let ladder = ladder(TASKS[task].1);
        let place = |value: u64| ladder.sigma(Some(Score { sum: value.into(), n: 10_000.try_into().unwrap() })).unwrap();
        let (a, b) = if ladder.0.phi == Phi::Identity { (a.min(b), a.max(b)) } else { (a.max(b), a.min(b)) };
        prop_assert!(place(a) <= place(b));
    }
}
