"""Compile examples/android_app with ExecuTorch's own Kotlin and stand-ins for Android's classes.

    npm install --prefix FOLDER kotlin-compiler
    python tools/android_app.py EXECUTORCH FOLDER

EXECUTORCH is a checkout of ExecuTorch's sources, of the version in the application's
`gradle.properties` or of another one. Needs a JDK. Nothing is run: the classes of Android and of
the native loader are declarations, as far as the application and ExecuTorch's Kotlin use them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APP = ROOT / "examples/android_app/app/src/main/kotlin"
PUBLISHED = Path("extension/android/executorch_android/src/main/java/org/pytorch/executorch")
STAND_INS = {
    "android.util.Log": "public class Log { public static int e(String a, String b) { return 0; }"
    " public static int e(String a, String b, Throwable c) { return 0; }"
    " public static int w(String a, String b) { return 0; } }",
    "com.facebook.jni.HybridData": "public class HybridData { public void resetNative() {}"
    " public boolean isValid() { return true; } }",
    "com.facebook.jni.annotations.DoNotStrip": "public @interface DoNotStrip {}",
    "com.facebook.soloader.nativeloader.SystemDelegate": "public class SystemDelegate {}",
    "com.facebook.soloader.nativeloader.NativeLoader": "public class NativeLoader {"
    " public static boolean isInitialized() { return true; }"
    " public static void init(SystemDelegate a) {}"
    " public static boolean loadLibrary(String a) { return true; } }",
    "android.content.res.AssetManager": "public final class AssetManager {"
    " public java.io.InputStream open(String a) throws java.io.IOException { return null; } }",
    "android.content.Context": "public abstract class Context {"
    " public abstract java.io.File getNoBackupFilesDir();"
    " public abstract android.content.res.AssetManager getAssets(); }",
    "android.os.Bundle": "public class Bundle {}",
    "android.view.View": "public class View {}",
    "android.widget.TextView": "public class TextView extends android.view.View {"
    " public TextView(android.content.Context a) {} public void setText(CharSequence a) {}"
    ' public CharSequence getText() { return ""; } }',
    "android.app.Activity": "public class Activity extends android.content.Context {"
    " public java.io.File getNoBackupFilesDir() { return null; }"
    " public android.content.res.AssetManager getAssets() { return null; }"
    " protected void onCreate(android.os.Bundle a) {} protected void onDestroy() {}"
    " public void setContentView(android.view.View a) {}"
    " public final void runOnUiThread(Runnable a) {} }",
}
"""The full name of a Java class → its declaration."""


def compiled(executorch: Path, compiler: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile the application with ExecuTorch's classes into a folder."""
    texts: list[Path] = []
    for name, text in STAND_INS.items():
        package, _, short = name.rpartition(".")
        place = folder / "java" / package.replace(".", "/") / f"{short}.java"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"package {package};\n{text}\n")
        texts.append(place)
    subprocess.run(["javac", "-d", folder / "android", *texts], check=True)
    published = executorch / PUBLISHED
    sources = [*published.glob("*.kt"), *published.glob("annotations/*.kt"), *APP.rglob("*.kt")]
    libraries = f"{folder / 'android'}:{compiler / 'kotlin-stdlib.jar'}"
    kotlin = ["java", "-cp", f"{compiler}/*", "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"]
    given = ["-no-stdlib", "-no-reflect", "-nowarn", "-cp", libraries, "-d", folder / "classes"]
    return subprocess.run([*kotlin, *given, *sources], capture_output=True, text=True)


def main() -> None:
    """Compile, and print the errors or the names of the application's classes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("executorch", type=Path, help="a checkout of ExecuTorch's sources")
    parser.add_argument("npm", type=Path, help="the folder of `npm install --prefix`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        compiler = arguments.npm / "node_modules" / "kotlin-compiler" / "lib"
        done = compiled(arguments.executorch, compiler, Path(text))
        print(done.stderr, end="", file=sys.stderr)
        made = (Path(text) / "classes/org/example").rglob("*.class")
        print("\n".join(sorted(each.name for each in made)))
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
