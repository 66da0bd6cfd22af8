package org.example.classify

import android.content.Context
import java.io.Closeable
import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor

/** Runs `assets/model.pte`: an image, float32 [1, 3, 224, 224], to the scores of 1000 classes. */
class Classifier(context: Context) : Closeable {
    private val module: Module = Module.load(copied(context).path, Module.LOAD_MODE_MMAP)

    init {
        module.loadMethod("forward")
    }

    /** Returns a score per class. The module is not thread-safe: call from one thread. */
    fun scores(image: FloatArray): FloatArray {
        require(image.size == COUNT) { "an image has $COUNT numbers, not ${image.size}" }
        val input: Tensor = Tensor.fromBlob(image, SHAPE)
        val outputs: Array<EValue> = module.forward(EValue.from(input))
        val output: Tensor = outputs[0].toTensor()
        return output.dataAsFloatArray
    }

    override fun close() {
        module.close()
    }

    companion object {
        /** "input 0" of `stepwell explain model.pte --deploy`; the AAR does not report sizes. */
        val SHAPE: LongArray = longArrayOf(1, 3, 224, 224)
        const val COUNT: Int = 3 * 224 * 224

        /** The runtime opens files by path, and an asset has none: copy it at each version. */
        private fun copied(context: Context): File {
            val file = File(context.noBackupFilesDir, "model.pte")
            context.assets.open("model.pte").use { asset ->
                file.outputStream().use { asset.copyTo(it) }
            }
            return file
        }
    }
}
