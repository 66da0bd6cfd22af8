package org.example.classify

import android.app.Activity
import android.os.Bundle
import android.widget.TextView
import java.util.concurrent.Executors

class MainActivity : Activity() {
    private val worker = Executors.newSingleThreadExecutor()

    override fun onCreate(savedInstanceState: Bundle?) {
        super.onCreate(savedInstanceState)
        val text = TextView(this)
        setContentView(text)
        worker.execute {
            val told = Classifier(this).use { classifier ->
                val image = FloatArray(Classifier.COUNT) // In an application: the camera's.
                classifier.scores(image) // The first call loads weights.
                val began = System.nanoTime()
                val scores = classifier.scores(image)
                val spent = (System.nanoTime() - began) / 1_000_000.0
                val best = scores.indices.maxByOrNull { scores[it] }
                "class $best, %.1f ms".format(spent)
            }
            runOnUiThread { text.text = told }
        }
    }

    override fun onDestroy() {
        worker.shutdown()
        super.onDestroy()
    }
}
