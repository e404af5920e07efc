"""The `baton` binary as a user meets it: help, errors, exit codes, and where it writes."""

import os
import pathlib
import subprocess
import tempfile
import unittest

BATON = pathlib.Path(os.environ["BATON_BINARIES"]) / "baton"


def baton(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([BATON, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class CommandLine(unittest.TestCase):
    def test_help_lists_the_subcommands(self):
        shown = baton("--help")
        self.assertEqual(shown.returncode, 0)
        self.assertIn("import-prompts", shown.stdout)
        self.assertRegex(baton("--version").stdout, r"^\d+\.\d+\.\d+")

    def test_usage_errors_say_what_is_missing(self):
        for arguments, named in ((), "subcommand"), (("import-prompts",), "source"), \
                (("fly",), "no command fly"):
            shown = baton(*arguments)
            self.assertEqual(shown.returncode, 2)
            self.assertIn(named, shown.stderr)
        shown = baton("bench", "--concurrency=0")
        self.assertEqual(shown.returncode, 2)
        self.assertIn("--concurrency", shown.stderr)

    def test_what_is_misspelt_gets_a_suggestion_in_one_line(self):
        for arguments, said in (
                (("up", "--prefil=2"), "baton up: unknown flag --prefil, did you mean --prefill? (see baton up --help)"),
                (("up", "--prefil", "2"), "baton up: unknown flag --prefil, did you mean --prefill? (see baton up --help)"),
                (("up", "now"), 'baton up: unexpected argument "now" (see baton up --help)'),
                (("up", "--prefill=-1"), "baton up: --prefill: Value -1 not in range 0 to 64 (see baton up --help)"),
                (("chatt",), "baton: no command chatt, did you mean chat? (see baton --help)"),
                (("--versio",), "baton: unknown flag --versio, did you mean --version? (see baton --help)")):
            shown = baton(*arguments)
            self.assertEqual((shown.returncode, shown.stderr), (2, said + "\n"))

    def test_help_of_a_subcommand_shows_its_flags_only(self):
        shown = baton("chat", "--help").stdout
        self.assertIn("--system", shown)
        self.assertNotIn("--concurrency", shown)

    def test_completion_is_a_script_that_its_shell_takes_and_knows_the_flags(self):
        completed = subprocess.run(
            ["bash", "-c", f"source <({BATON} completion bash); COMP_WORDS=(baton bench --conc); "
             "COMP_CWORD=2; _baton 2>/dev/null; echo ${COMPREPLY[*]}"],
            capture_output=True, text=True)
        self.assertEqual(completed.stdout.strip(), "--concurrency=", completed.stderr)
        for shell in "zsh", "fish":
            self.assertIn("--concurrency" if shell == "zsh" else "-l concurrency",
                          baton("completion", shell).stdout)
        self.assertEqual(baton("completion", "csh").returncode, 2)

    def test_a_file_with_other_texts_is_refused_and_nothing_is_written(self):
        with tempfile.TemporaryDirectory() as model:
            source = pathlib.Path(model, "encoding", "encoding_dsv4.py")
            source.parent.mkdir()
            source.write_text("dsml_token = '|'\nthinking_start_token = '<'\n"
                              "thinking_end_token = '>'\nREASONING_EFFORT_MAX = 'x'\n"
                              "TOOLS_TEMPLATE = 'a{tool_schemas}b'\n"
                              "response_format_template = 'c{schema}'\n")
            shown = baton("import-prompts", source)
            self.assertEqual(shown.returncode, 1)
            self.assertIn(f"{source}: reasoning_effort_max, 1 bytes, has SHA-256", shown.stderr)
            self.assertFalse(pathlib.Path(model, "chat_prompts.json").exists())

    def test_needle_refuses_what_configures_engines_where_a_server_is_asked(self):
        url = "--url=http://127.0.0.1:1"
        for flags, refused in ((("--topk=1,2", "--numerics=exact"), "--numerics, --topk configure"),
                               (("--colocated",), "--colocated configures"),
                               (("--worker-flag=--pages=9",), "--worker-flag configures")):
            shown = baton("needle", url, *flags)
            self.assertEqual(shown.returncode, 2, shown.stderr)
            self.assertIn(f"{refused} an engine that is started", shown.stderr)
        explain = (url, "--explain", "--model-dir=/nonexistent")
        shown = baton("needle", *explain, "--index=bf16,fp8")
        self.assertEqual(shown.returncode, 2)
        self.assertIn("--index has several values", shown.stderr)
        shown = baton("needle", *explain, "--index=fp8", "--worker-flag=--pages=9")
        self.assertEqual(shown.returncode, 1, "the engine that explains has a configuration")
        self.assertIn("/nonexistent", shown.stderr)

    def test_help_of_needle_shows_the_grid(self):
        shown = baton("needle", "--help").stdout
        for default in "338,943,1850", "5,50,95":
            self.assertIn(default, shown)

    def test_a_source_of_prompts_that_is_none_is_asked_about(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "other.py")
            other.write_text("x = 'y'\n")
            for source, said in ((other, "is this a checkpoint's encoding/encoding_dsv4.py?"),
                                 (folder, f"{folder} is a folder")):
                shown = baton("import-prompts", source)
                self.assertEqual(shown.returncode, 1)
                self.assertIn(said, shown.stderr)

    def test_a_file_that_is_not_there_is_named(self):
        shown = baton("import-prompts", "/nonexistent/encoding_dsv4.py")
        self.assertEqual(shown.returncode, 1)
        self.assertIn("/nonexistent/encoding_dsv4.py", shown.stderr)


if __name__ == "__main__":
    unittest.main()
