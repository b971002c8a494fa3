import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic" },
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "globalThis" },
  build: { outDir: "dist", chunkSizeWarningLimit: 20000, minify: false, sourcemap: false },
});
