"""Reads an export request on standard input with OpenTelemetry's own types, and says as JSON what is in it."""

import json
import sys

from google.protobuf import unknown_fields
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

request = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())


def value(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value(item) for item in any_value.array_value.values]
    return getattr(any_value, kind)


def pairs(attributes):
    return {pair.key: value(pair.value) for pair in attributes}


spans = []
unknown = []
for resource_spans in request.resource_spans:
    for scope_spans in resource_spans.scope_spans:
        for span in scope_spans.spans:
            # Fields that the definitions do not have would be kept apart in silence.
            if len(unknown_fields.UnknownFieldSet(span)) > 0:
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
json.dump({"spans": spans, "unknown": unknown, "whole": bool(MessageToDict(request))}, sys.stdout)
