{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "weir.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "weir.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "weir.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "weir.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* What the chart decides; `config` is laid over it. While authentication is off, Weir's own paths answer to known names alone. */}}
{{- define "weir.config" -}}
{{- $name := include "weir.fullname" . }}
{{- $hosts := list (printf "%s.%s" $name .Release.Namespace) (printf ".%s.svc" .Release.Namespace) ".svc.cluster.local" }}
{{- $server := dict "metrics_addr" (printf "0.0.0.0:%d" (int .Values.metrics.port)) "allowed_hosts" $hosts }}
{{- $own := dict "listen_addr" "0.0.0.0:8080" "server" $server "storage" (dict "database_path" "/var/lib/weir/weir.db") }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) }}
{{- end }}
