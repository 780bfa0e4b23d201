"""Reads an export request of spans, or with `metrics` of metrics, on standard input with OpenTelemetry's own types, and says as JSON what is
in it."""

import json
import sys

from google.protobuf import unknown_fields
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality


def value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in any_value.array_value.values]
    return getattr(any_value, kind)


def pairs(attributes):
    return {pair.key: value(pair.value) for pair in attributes}


def is_unknown(message):
    # Fields that the definitions do not have would be kept apart in silence.
    return len(unknown_fields.UnknownFieldSet(message)) > 0


def read_spans(body):
    request = ExportTraceServiceRequest.FromString(body)
    spans, unknown = [], []
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if is_unknown(span):
                    unknown.append(span.name)
                spans.append(
                    {
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "name": span.name,
                        "kind": span.kind,
                        "start_ns": span.start_time_unix_nano,
                        "end_ns": span.end_time_unix_nano,
                        "attributes": pairs(span.attributes),
                        "events": [[event.name, pairs(event.attributes)] for event in span.events],
                        "status": span.status.code,
                        "flags": span.flags,
                        "resource": pairs(resource_spans.resource.attributes),
                        "scope": scope_spans.scope.name,
                        "schema_url": scope_spans.schema_url,
                    }
                )
    return {"spans": spans, "unknown": unknown, "whole": bool(MessageToDict(request))}


def read_point(metric, kind, data, point):
    histogram = kind == "histogram"
    exemplars = [[item.trace_id.hex(), item.span_id.hex()] for item in point.exemplars]
    return {
        "name": metric.name,
        "unit": metric.unit,
        "kind": kind,
        "monotonic": kind == "sum" and data.is_monotonic,
        "temporality": "" if kind == "gauge" else AggregationTemporality.Name(data.aggregation_temporality),
        "labels": [[pair.key, value(pair.value)] for pair in point.attributes],
        "start_ns": point.start_time_unix_nano,
        "time_ns": point.time_unix_nano,
        "value": point.sum if histogram else float(getattr(point, point.WhichOneof("value"))),
        "count": point.count if histogram else 0,
        "buckets": list(point.bucket_counts) if histogram else [],
        "bounds": list(point.explicit_bounds) if histogram else [],
        "exemplar": exemplars[0] if exemplars else None,
    }


def read_metrics(body):
    request = ExportMetricsServiceRequest.FromString(body)
    points, unknown, described = [], [], 0
    for resource_metrics in request.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                described += metric.description != ""
                for point in data.data_points:
                    if any(map(is_unknown, [metric, data, point, *point.exemplars])):
                        unknown.append(metric.name)
                    points.append(read_point(metric, kind, data, point))
    return {"points": points, "unknown": unknown, "described": described}


read = read_metrics if sys.argv[1:] == ["metrics"] else read_spans
json.dump(read(sys.stdin.buffer.read()), sys.stdout)
