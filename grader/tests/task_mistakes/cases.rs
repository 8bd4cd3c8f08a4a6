//! A good task, and what may be wrong with it.

/// A good task of lifecycle `replay`.
pub(crate) const REPLAY: &str = r#"[airlock]
version = 1
lifecycle = "replay"
submission = "patch"
[airlock.editable]
trainer = ["train.py"]
[airlock.budget]
explore = "4h"
replay = "12h"
[airlock.checkpoints]
name = "step-{progress}"
[airlock.proxy]
name = "proxy"
direction = "max"
items = { count = 2 }
[airlock.metric]
name = "accuracy"
direction = "max"
items = ["a", "b"]
[airlock.ladder]
phi = "identity"
uninformative = 0
baseline = 0.5
optimum = 1
[[airlock.asset]]
name = "test"
path = "assets/test"
visibility = "hidden"
[[airlock.asset]]
name = "dev"
path = "assets/dev"
visibility = "validation"
[[airlock.phase]]
name = "explore"
[[airlock.phase]]
name = "replay"
command = ["python3", "train.py"]
[[airlock.phase]]
name = "validate"
command = ["python3", "-I", "/tests/score.py"]
mounts = [{ source = "asset:dev", target = "/data" }]
[[airlock.phase]]
name = "score"
command = ["python3", "-I", "/tests/final.py"]
mounts = [{ source = "asset:test", target = "/data" }]
"#;

/// Where the mistake must be shown; it is taken out of the text.
pub(crate) const MARK: char = '‸';

/// A part of [`REPLAY`], what stands there instead, and parts of message and help.
pub(crate) type Case = (&'static str, &'static str, &'static str, &'static str);

pub(crate) const SYNTAX: &[Case] = &[
    ("[airlock]\n", "[airlock]\n[‸airlock]\n", "`airlock` stands here a second time", "leave one"),
    ("version = 1", "version = ‸2", "version 2 of the task format is unknown", "`version = 1`"),
    (
        "lifecycle = \"replay\"",
        "‸lifecylce = \"replay\"",
        "unknown key `lifecylce`",
        "did you mean `lifecycle`?",
    ),
    ("\"replay\"\nsub", "‸\"rerun\"\nsub", "unknown value `rerun`", "`direct`"),
    ("trainer =", "‸trainers =", "unknown key `trainers`", "did you mean `trainer`?"),
    ("name = \"score\"", "name = ‸\"final\"", "unknown value `final`", "`score`"),
    ("[airlock.metric]\n", "[airlock.‸metrics]\n", "unknown key `metrics`", "did you mean `metric`?"),
    ("direction = \"max\"\nitems = [", "direction = ‸\"up\"\nitems = [", "unknown value `up`", "`max`"),
    ("optimum = 1", "optimum = ‸\"1\"", "expected a number", ""),
    ("[\"a\", \"b\"]", "‸7", "expected a list of names", ""),
];

pub(crate) const LIFECYCLE: &[Case] = &[
    ("\"patch\"", "‸\"tree\"", "would bring its results along", "submission = \"patch\""),
    ("\"4h\"\nreplay = \"12h\"", "‸\"4h\"", "the replay has no time", "replay = \"12h\""),
    ("\"4h\"", "‸\"4\"", "the duration `4` has no unit", "\"4h\""),
    ("\"4h\"", "‸\"0s\"", "ends the command before it starts", ""),
    ("\"12h\"", "‸\"12 hours\"", "`hours` is not a unit", ""),
    (
        "[airlock.checkpoints]\nname = \"step-{progress}\"\n",
        "",
        "needs [airlock.checkpoints]",
        "step-{progress}",
    ),
    ("\"step-{progress}\"", "‸\"step\"", "`{progress}` does not stand in it", "step-{progress}"),
    ("\"step-{progress}\"", "‸\"a/{progress}\"", "it has a `/`", ""),
    ("\"step-{progress}\"", "\"step-{progress}\"\nlimit = ‸0", "0 is not a number of checkpoints", "from 1"),
    ("\"step-{progress}\"", "\"step-{progress}\"\npayload = [‸\"/w\"]", "`/w` matches no path", "relative"),
    ("\"step-{progress}\"", "\"step-{progress}\"\ncommand = ‸[]", "an empty command", "python3"),
];

pub(crate) const CANDIDATES: &[Case] = &[
    ("trainer = [\"train.py\"]", "trainer = [‸\"../x\"]", "`../x` matches no path", "relative"),
    ("trainer = [\"train.py\"]", "trainer = [\"train.py\", ‸\"[a\"]", "`[a`", ""),
    (
        "trainer = [\"train.py\"]",
        "allow_create = false\ntrainer = [\"train.py\", ‸\"src/**\"]",
        "`src/**` matches no file of environment/",
        "`allow_create` is false",
    ),
    (
        "[airlock.editable]\ntrainer = [\"train.py\"]",
        "‸[airlock.editable]\ntrainer = []",
        "nothing may be edited",
        "**",
    ),
    (
        "[airlock.proxy]",
        "[airlock.gates]\nrows = [‸\"tset\"]\n[airlock.proxy]",
        "no asset is called `tset`",
        "`test`",
    ),
    ("[airlock.proxy]", "[airlock.gates.patch]\nmax_file = ‸4\n[airlock.proxy]", "`4` has no unit", "GiB"),
    (
        "[airlock.proxy]",
        "[airlock.gates.patch]\nmax_numbers = ‸-1\n[airlock.proxy]",
        "-1 is not a count",
        "from 0",
    ),
    (
        "[airlock.proxy]",
        "[airlock.gates.artifact]\npickles = ‸\"allow\"\n[airlock.proxy]",
        "unknown value `allow`",
        "`refuse`",
    ),
];

pub(crate) const MEASURE: &[Case] = &[
    ("[\"a\", \"b\"]", "‸[]", "no items are planned", ""),
    ("[\"a\", \"b\"]", "[\"a\", ‸\"a\"]", "the item `a` is planned twice", ""),
    ("[\"a\", \"b\"]", "[\"a\", ‸\" b\"]", "without control characters or white space", ""),
    ("[\"a\", \"b\"]", "{ file = ‸\"tests/none.txt\" }", "`tests/none.txt`: No such file", ""),
    ("[\"a\", \"b\"]", "‸{ file = \"tests/score.py\", count = 2 }", "by a file, or by a count", "prefix"),
    ("{ count = 2 }", "{ count = ‸0 }", "0 is not a number of items", "from 1"),
    ("[\"a\", \"b\"]", "[\"a\"]\nk = ‸3", "`mean` is of one attempt", ""),
    ("[\"a\", \"b\"]", "[\"a\"]\nk = ‸0", "0 is not a number of attempts", "from 1"),
    ("[\"a\", \"b\"]", "[\"a\"]\ncommand = ‸[\"x\"]", "belongs to [airlock.proxy]", "`score`"),
    ("\"identity\"", "‸\"negate\"", "under the direction `max`", "`identity`"),
    ("uninformative = 0", "uninformative = ‸inf", "better than any score", ""),
    ("baseline = 0.5", "baseline = ‸0.0", "the baseline (0) is not better than the uninformative", ""),
    ("optimum = 1", "optimum = ‸0.4", "the optimum (0.4) is not better than the baseline", ""),
    ("optimum = 1", "optimum = 1\nbelow = ‸\"ratio\"", "below=ratio is for an infinite", ""),
    ("optimum = 1", "optimum = ‸1_0", "`1_0` is not a finite decimal", ""),
    (
        "optimum = 1",
        "optimum = 1\n[airlock.references]\npaper_value = ‸0.6",
        "the paper's value is 0.6, and the ladder's baseline is 0.5",
        "stands on",
    ),
];

pub(crate) const ASSETS: &[Case] = &[
    ("\"assets/test\"", "‸\"../test\"", "not a path in the task directory", "without `path`"),
    ("\"assets/test\"", "‸\"/srv/test\"", "not a path in the task directory", "without `path`"),
    ("\"assets/test\"", "‸\"assets/tset\"", "`assets/tset`: No such file", ""),
    ("\"assets/test\"", "‸\".\"", "the task directory as a whole", "is meant"),
    (
        "\"assets/test\"",
        "‸\"environment/train.py\"",
        "overlaps `environment`, which the agent sees",
        "assets/",
    ),
    ("\"assets/test\"", "‸\"instruction.md\"", "overlaps `instruction.md`", "assets/"),
    // What few may see must not lie in what more may see.
    ("\"assets/dev\"", "‸\"assets\"", "overlaps the hidden asset `assets/test`", "of their own"),
    (
        "\"assets/dev\"\nvisibility = \"validation\"",
        "‸\"tests\"\nvisibility = \"open\"",
        "overlaps `tests`",
        "assets/",
    ),
    (
        "name = \"dev\"",
        "name = \"dev\"\nvisibility = \"open\"\n[[airlock.asset]]\nname = ‸\"dev\"",
        "is called `dev` already",
        "",
    ),
    (
        "name = \"dev\"",
        "name = \"dev\"\nvisibility = \"open\"\n[[airlock.asset]]\nname = ‸\"d v\"",
        "1 to 64 letters",
        "",
    ),
    ("visibility = \"hidden\"", "visibility = \"hidden\"\ndigest = ‸\"md5:1\"", "`md5:1`", ""),
    // The directory of the scorer is mounted in `validate` too.
    (
        "path = \"assets/test\"",
        "path = \"tests/score.py\"",
        "the hidden asset `tests/score.py` through `task:tests`",
        "move",
    ),
];

pub(crate) const PHASES: &[Case] = &[
    (
        "name = \"explore\"",
        "name = \"explore\"\n[[airlock.phase]]\nname = ‸\"explore\"",
        "the phase `explore` stands here twice",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\ncommand = ‸[\"x\"]",
        "the agent that the operator names",
        "leave",
    ),
    (
        "\"replay\"\ncommand = [\"python3\", \"train.py\"]",
        "‸\"replay\"",
        "the phase `replay` runs nothing",
        "command =",
    ),
    ("[\"python3\", \"train.py\"]", "‸[\"\"]", "the program's name is empty", ""),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\nlimits = { wall = ‸\"1h\" }",
        "stands in [airlock.budget]",
        "as `replay`",
    ),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nlimits = { memory = ‸64 }", "the size `64` has no unit", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nlimits = { ‸memroy = 64 }", "unknown key `memroy`", "`memory`"),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nverdict = ‸\"descriptor\"", "`replay` gives no verdict", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nnetwork = ‸\"broker\"", "`broker` is a reserved word", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\ngpus = ‸-1", "-1 is not a number of GPUs", ""),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\npolicy = ‸\"replya\"",
        "no built-in policy is called `replya`",
        "",
    ),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\npolicy = ‸\"../p.toml\"",
        "not a path in the task directory",
        "",
    ),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\npolicy = ‸\"./none.toml\"", "none.toml: No such file", ""),
    ("name = \"validate\"", "name = ‸\"validate\"\nlimits = { wall = \"unlimited\" }", "has no end", "wall"),
];

pub(crate) const MOUNTS: &[Case] = &[
    // A hidden asset in any phase but `score` is the whole game (attacks.md, reading answers).
    ("\"asset:dev\"", "‸\"asset:test\"", "visibility `hidden`: only `score` may mount it", ""),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"asset:test\", target = \"/t\" }]",
        "visibility `hidden`: only `score` may mount it",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"asset:dev\", target = \"/t\" }]",
        "visibility `validation`: only `validate` and `score` may mount it",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"task:tests\", target = \"/t\" }]",
        "only scorers",
        "visibility = \"open\"",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"run:candidate\", target = \"/t\" }]",
        "only `validate`, `score` and `candidate` have `run:candidate`",
        "",
    ),
    (
        "\"asset:dev\"",
        "‸\"task:assets\"",
        "would see the hidden asset `assets/test` through `task:assets`",
        "move",
    ),
    ("\"asset:dev\"", "‸\"task:../x\"", "not a path in the task directory", ""),
    ("\"asset:dev\"", "‸\"asset:dve\"", "no asset is called `dve`", "did you mean `dev`?"),
    ("\"asset:dev\"", "‸\"run:workspace\"", "only `explore` and `replay` have `run:workspace`", ""),
    ("\"asset:dev\"", "‸\"run:frozn\"", "a run has no `frozn`", "did you mean `frozen`?"),
    ("\"asset:dev\"", "‸\"/srv/data\"", "`/srv/data` is not a source", "`asset:NAME`"),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"data\"", "not absolute", "\"/data\""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/proc/x\"", "at or below /proc", ""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/run/airlock\"", "its own files", ""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/run\"", "its own files", ""),
    (
        "\"asset:dev\", target = \"/data\"",
        "\"asset:dev\", target = ‸\"/candidate\"",
        "where `run:candidate` goes",
        "",
    ),
    (
        "\"asset:dev\", target = \"/data\"",
        "\"asset:dev\", target = \"/data\", mode = ‸\"rw\"",
        "read-only",
        "",
    ),
    (
        "mounts = [{ source = \"asset:dev\", target = \"/data\" }]",
        "mounts = [{ source = \"asset:dev\", target = \"/a\" }, { source = \"run:frozen\", target = ‸\"/a/\" }]",
        "/a is mounted twice",
        "",
    ),
];
