# frozen_string_literal: true

require_relative 'lib/storm'

Gem::Specification.new do |spec|
  spec.name = 'squall-storm'
  spec.version = Storm::VERSION
  spec.summary = 'Spouts and bolts in Ruby for Squall and Apache Storm'
  spec.description = "Storm's multi-language protocol: shell components of a topology, in Ruby."
  spec.authors = ['The Squall developers']
  spec.license = 'Apache-2.0'
  spec.files = ['lib/storm.rb', 'README.md']
  spec.required_ruby_version = '>= 2.7'
  spec.metadata = { 'rubygems_mfa_required' => 'true' }
end
