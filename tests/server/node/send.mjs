// One weight edit as a span and as a log record, by OpenTelemetry's own exporters over HTTP: node send.mjs http://HOST:PORT ATTRIBUTES
import { OTLPLogExporter as JsonLogs } from "@opentelemetry/exporter-logs-otlp-http";
import { OTLPLogExporter as ProtoLogs } from "@opentelemetry/exporter-logs-otlp-proto";
import { OTLPTraceExporter as JsonSpans } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as ProtoSpans } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { LoggerProvider, SimpleLogRecordProcessor } from "@opentelemetry/sdk-logs";
import { SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";

const [url, told] = process.argv.slice(2);
const attributes = JSON.parse(told);
const resource = resourceFromAttributes({ "service.name": "node" });
const name = "countermark.weights.edit";

for (const [Spans, Logs] of [[ProtoSpans, ProtoLogs], [JsonSpans, JsonLogs]]) {
  const spans = new TracerProvider({
    resource,
    spanProcessors: [new SimpleSpanProcessor({ exporter: new Spans({ url: `${url}/v1/traces` }) })],
  });
  spans.getTracer("senders").startSpan(name, { attributes }).end();
  await spans.forceFlush();
  await spans.shutdown();
  const logs = new LoggerProvider({
    resource,
    processors: [new SimpleLogRecordProcessor({ exporter: new Logs({ url: `${url}/v1/logs` }) })],
  });
  logs.getLogger("senders").emit({ eventName: name, attributes });
  await logs.forceFlush();
  await logs.shutdown();
}
